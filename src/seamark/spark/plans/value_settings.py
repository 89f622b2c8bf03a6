"""Settings of the session that decide values, and that neither expressions nor sources have noted.

Spark asks for them where it computes: ``to_date(s)`` is another day by another parser of times, and
a column of a Parquet file is null when its name is only known in capitals.

Tests: ``tests/spark/test_value_settings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from seamark._common.text import shortened
from seamark._redaction import redacted
from seamark.limits import LONGEST_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = "settings"
"""The member of a structure that holds them."""
_LEGACY: Final = "spark.sql.legacy."
_OWN: Final = "Spark's own"
_NAMES: Final = frozenset(
    {
        "spark.sql.avro.datetimeRebaseModeInRead",
        "spark.sql.caseSensitive",
        "spark.sql.columnNameOfCorruptRecord",
        "spark.sql.json.enableExactStringParsing",
        "spark.sql.json.enablePartialResults",
        "spark.sql.mapKeyDedupPolicy",
        "spark.sql.parquet.binaryAsString",
        "spark.sql.parquet.datetimeRebaseModeInRead",
        "spark.sql.parquet.fieldId.read.enabled",
        "spark.sql.parquet.int96AsTimestamp",
        "spark.sql.parquet.int96RebaseModeInRead",
        "spark.sql.parquet.int96TimestampConversion",
    }
)


def value_settings(spark: SparkSession) -> dict[str, str]:
    """Those of a session that are not Spark's own, in lower case, as Spark compares them."""
    given: Mapping[str, str] = spark.conf.getAll
    chosen = {name: value.strip().lower() for name, value in given.items() if _decides(name)}
    if not chosen:
        return {}
    jvm: Any = spark.sparkContext._jvm
    of_spark = jvm.org.apache.spark.sql.internal.SQLConf()
    return {
        name: redacted(value)
        for name, value in sorted(chosen.items())
        if value != _default(of_spark, name)
    }


def _decides(name: str) -> bool:
    return name in _NAMES or name.startswith(_LEGACY)


def _default(of_spark: Any, name: str) -> str | None:
    try:
        return str(of_spark.getConfString(name)).lower()
    except Py4JError:  # it has none, or this Spark does not know it
        return None


def settings_changed(old: Any, new: Any) -> list[str]:
    """What was set otherwise, in words; nothing where one of both was not recorded. Pure."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    return [
        f"setting {_shown(name)}: {_shown(old.get(name, _OWN))} → {_shown(new.get(name, _OWN))}: "
        "values may be computed or read in another way than before"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _shown(value: Any) -> str:
    return shortened(str(value), LONGEST_PREFIX)
