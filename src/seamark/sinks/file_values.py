"""How values go into files of each format: none is changed without a word.

Tests: ``tests/sinks/test_file_values.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from seamark.sinks.unfit_values import (
    refusing_broken_texts,
    refusing_unfit,
    with_whole_texts,
    without_unfit,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_TEXT: Final = ("json", "csv")
_LOCAL: Final = {"timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
"""By default Spark writes three digits and cuts the others off. Its readers take six as well."""
_ZONED: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX"}
"""The same with the distance from UTC, which has seconds in old times: ``-07:52:58``."""
_POLICY: Final = "spark.sql.legacy.timeParserPolicy"
_WITH_BLANKS: Final = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
_GAP_DAYS: Final = (-141_437, -141_428)
"""5 to 14 October 1582, in days since 1970."""
_ANY_ZONE: Final = 16 * 3600 * 1_000_000
"""No clock was ever further from UTC, in microseconds."""
_GAP: Final = (-12_220_156_800_000_000 - _ANY_ZONE, -12_219_292_800_000_000 + _ANY_ZONE)
"""The same days by the clock of any zone, in microseconds."""
_BEFORE_1970: Final = (-999_000, -1)
_TIME: Final = "time"
"""The fault of a time that is moved."""
_CUT: Final = "fraction"
"""The fault of a time that is cut off."""
_STORED: Final = "spark.sql.parquet.outputTimestampType"
_CALENDAR: Final = "spark.sql.parquet.datetimeRebaseModeInWrite"
_CALENDAR_OF_INT96: Final = "spark.sql.parquet.int96RebaseModeInWrite"
_MILLISECONDS: Final = "TIMESTAMP_MILLIS"


def knows_new_patterns(df: DataFrame) -> bool:
    """Whether times are written by the patterns of Spark 3 and later."""
    return str(df.sparkSession.conf.get(_POLICY)).upper() != "LEGACY"


def writing_options(
    file_format: str, given: Mapping[str, Any], *, new_patterns: bool = True
) -> dict[str, Any]:
    """Options of Spark's writer: those that were given, and what keeps values as they are."""
    if file_format not in _TEXT:
        return dict(given)
    kept = _LOCAL | (_ZONED if new_patterns else {})
    kept |= _WITH_BLANKS if file_format == "csv" else {}
    names = {name.lower() for name in given}
    return {name: value for name, value in kept.items() if name.lower() not in names} | {**given}


def without_changed(df: DataFrame, file_format: str) -> DataFrame:
    """The same rows; writing them fails at a value that the format would change."""
    if file_format == "parquet":
        return _without_changed_in_parquet(df)
    if file_format == "orc":
        return without_unfit(df, dict.fromkeys(df.columns, _changed_in_orc), _TIME)
    return with_whole_texts(df, df.columns)


def refusing_changed(file_format: str, where: str) -> AbstractContextManager[None]:
    """Makes the failure of :func:`without_changed` a refusal of the column."""
    if file_format == "parquet":
        return _refusing_changed_in_parquet(where)
    if file_format == "orc":
        return refusing_unfit(
            _TIME,
            lambda name: (
                f"column {name!r} has a time that orc would move: one of 5 to 14 October 1582, or "
                "of the last second before 1970"
            ),
            where,
            "Write parquet, or leave such rows out.",
        )
    return refusing_broken_texts(where, file_format)


@contextmanager
def _refusing_changed_in_parquet(where: str) -> Iterator[None]:
    moved = refusing_unfit(
        _TIME,
        lambda name: (
            f"column {name!r} has a date or time of 5 to 14 October 1582, which the old calendar "
            "does not have: parquet would move it"
        ),
        where,
        f"Set {_CALENDAR} and {_CALENDAR_OF_INT96} to CORRECTED, or leave such rows out.",
    )
    cut = refusing_unfit(
        _CUT,
        lambda name: f"column {name!r} has a time with microseconds, which parquet would cut off",
        where,
        f"Set {_STORED} to TIMESTAMP_MICROS, or cut them in the output: "
        "date_trunc('MILLISECOND', …).",
    )
    with moved, cut:
        yield


def _without_changed_in_parquet(df: DataFrame) -> DataFrame:
    """Settings of the session have it keep milliseconds only, or the calendar before 1582."""
    conf = df.sparkSession.conf
    stored, calendar = str(conf.get(_STORED)).upper(), str(conf.get(_CALENDAR)).upper()
    of_times = str(conf.get(_CALENDAR_OF_INT96)).upper() if stored == "INT96" else calendar
    if stored == _MILLISECONDS:
        df = without_unfit(df, dict.fromkeys(df.columns, _has_microseconds), _CUT)
    if "LEGACY" not in (calendar, of_times):
        return df

    def is_moved(value: Column, kind: DataType) -> Column | None:
        from pyspark.sql import functions as f
        from pyspark.sql.types import DateType, TimestampType

        if isinstance(kind, DateType) and calendar == "LEGACY":
            return f.unix_date(value).between(*_GAP_DAYS)
        if isinstance(kind, TimestampType) and of_times == "LEGACY":
            return f.unix_micros(value).between(*_GAP)
        return None

    return without_unfit(df, dict.fromkeys(df.columns, is_moved), _TIME)


def _has_microseconds(value: Column, kind: DataType) -> Column | None:
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    return f.unix_micros(value) % 1000 != 0 if isinstance(kind, TimestampType) else None


def _changed_in_orc(value: Column, kind: DataType) -> Column | None:
    """Java's calendar leaves out ten days, and ORC rounds to seconds towards 1970."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import DateType, TimestampType

    if isinstance(kind, DateType):
        return f.unix_date(value).between(*_GAP_DAYS)  # a date of Python takes Java's calendar
    if isinstance(kind, TimestampType):
        micros = f.unix_micros(value)
        return micros.between(*_GAP) | micros.between(*_BEFORE_1970)
    return None
