"""Random columns of every type that Spark has, with the values that others get wrong.

A value is written in Spark's SQL, so that a case can be printed and typed again. Texts and times
are written by their bytes and microseconds: no time zone and no encoding comes in between.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NULL: Final = "NULL"
ID: Final = "id"
"""A whole number that every row has of its own."""
ODD_NAMES: Final = (
    *("a", "B", "c.d", "select", 'quo"te', "it's", "back`tick", "sp ace", "\u00fc", "e\u0301"),
    *("1st", "com,ma", "semi;colon", "x=y", "per%cent", "sla/sh", "tab\t", "new\nline", "%s"),
    *("{x}", "$1", "key", "value", "rank", "time", "deleted", "token", "null", "path", "element"),
    *("_under", ".dot", "_seamark_try", "__seamark_exact_0", "timestamp", "a[0]", "back\\slash"),
)


@dataclass(frozen=True)
class Column:
    """A column, and its value in each row of all epochs, in SQL."""

    name: str
    kind: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name!r} {self.kind} [{'; '.join(each[:90] for each in self.values)}]"


@dataclass(frozen=True)
class Case:
    """Rows of two epochs, and how a sink writes them."""

    sink: str
    """Which one, such as ``files-csv``."""
    columns: tuple[Column, ...]
    mode: str = "append"
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    choices: int = 0
    """From which the target draws the rest: the types of its columns, transforms and the like."""
    settings: Mapping[str, str] = field(default_factory=dict)
    is_piped: bool = False
    """Whether a pipeline runs, or the sink alone goes through its steps."""

    def __str__(self) -> str:
        how = f"{self.sink} {self.mode} by {self.partition_by} keys {self.keys} {self.choices}"
        return f"{how} {dict(self.settings)}: " + ", ".join(map(str, self.columns))

    @property
    def rows(self) -> int:
        return len(self.columns[0].values)

    @property
    def epochs(self) -> int:
        """How many there are; a later one replaces rows, and has to know those of an earlier."""
        return 2 if self.is_piped or self.mode != "append" else 1

    def without(self, name: str) -> Case:
        """The same without a column."""
        return replace(
            self,
            columns=tuple(each for each in self.columns if each.name != name),
            partition_by=tuple(each for each in self.partition_by if each != name),
        )


# values


def _text(text: Any) -> str:
    data = text.encode() if isinstance(text, str) else text
    if data.isalnum():
        return f"'{data.decode()}'"
    return f"CAST(X'{data.hex()}' AS STRING)"


_TAME_TEXTS: Final = tuple(map(_text, ("a", "b", "London", "x1", "\u00fcber", "Zz")))
_ODD_TEXTS: Final = tuple(
    map(
        _text,
        (
            *("", "\0", "a\0b", b"\xff", b"ok\xc3", b"\xed\xa0\x80", "\u00e9", "e\u0301", "A"),
            *('"', '""', "'", "\\", "\\N", '\\"', 'a"b', "\n", "\r", "\r\n", "\t", "a,b", " a "),
            *(" ", "null", "NULL", "None", "nan", "true", "1", "01", "1e5", "2020-01-01", "\ufeff"),
            *("\u2028", "\U0001f600", "{}", "[1]", '{"a":1}', "a/b", "a=b", "%25", "%", "a%2Fb"),
            *("..", ".", "_x", ".x", "#c", "\x7f", "\u00df", "\u0130", "x._COPYING_", "-", "/"),
            *("__HIVE_DEFAULT_PARTITION__", "x" * 32 + "\U0010ffff", "y" * 33, "z" * 300),
            *("\U0010ffff" * 40, "\u00e9" * 130, "w" * 5000, "\\u0000", "$1", "\\1", "?", "*"),
        ),
    )
)
_TIMES: Final = (
    *(-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 0, 1, -999_999, -1_000_001, -500_000),
    *(-12_219_292_800_000_000, -12_219_292_800_000_001, -12_220_156_800_000_001),
    *(-12_219_900_000_000_000, -2_208_988_800_000_001, -5_364_662_400_000_000, -86_400_000_001),
    *(1_741_503_599_999_999, 1_741_505_400_000_000, 1_761_440_400_000_000, 1_761_444_000_123_000),
    *(951_782_400_000_000, 1_700_000_000_123_456, 4_102_444_800_000_001),
)
_DAYS: Final = (-719_162, 2_932_896, 0, -1, -141_428, -141_427, -141_437, -141_438, 11_016, 20_000)
_WHOLE: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_DECIMALS: Final = (
    *((1, 0), (1, 1), (5, 4), (9, 2), (10, 0), (18, 18), (19, 0), (20, 5), (38, 0), (38, 38)),
    *((38, 18), (18, 0)),
)
_INTERVALS: Final = {
    "interval day to second": ("'{}' DAY TO SECOND", ("0 0:0:0", "1 2:3:4.567891", "-1 0:0:0.1")),
    "interval year to month": ("'{}' YEAR TO MONTH", ("0-0", "1-2", "-178956970-8")),
}
_DOUBLES: Final = (
    *("double('NaN')", "double('Infinity')", "double('-Infinity')", "-0.0D", "4.9E-324D", "1E17D"),
    *("1.7976931348623157E308D", "0.1D", "-1.0E-7D", "123456789.123D", "0.0D", "9007199254740993D"),
)
_FLOATS: Final = (
    *("float('NaN')", "float('Infinity')", "float('-Infinity')", "-0.0F", "1.4E-45F", "0.1F"),
    *("3.4E38F", "1.0E10F", "0.0F", "-1.17549435E-38F"),
)


def _decimal(precision: int, scale: int, unscaled: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    sign = "-" if unscaled < 0 else ""
    number = f"{sign}{whole}{'.' if scale else ''}{part}"
    return f"CAST('{number}' AS DECIMAL({precision},{scale}))"


def pools(kind: str) -> tuple[Sequence[str], Sequence[str]]:
    """Usual and odd values of a plain type."""
    if kind.startswith("string"):
        return _TAME_TEXTS, _ODD_TEXTS
    if kind == "boolean":
        return ("true", "false"), ("true", "false")
    if kind in _WHOLE:
        most = 1 << _WHOLE[kind]
        usual = [f"{kind}({n})" for n in (1, 2, 42, -7, 100)]
        return usual, [f"CAST('{n}' AS {kind})" for n in (-most, most - 1, 0, -1)]
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        most = 10**precision - 1
        usual = [_decimal(precision, scale, n) for n in (1, 2, 7, -3)]
        return usual, [_decimal(precision, scale, n) for n in (0, most, -most, -1, most // 3)]
    if kind == "binary":
        return ("X'61'", "X'6263'"), ("X''", "X'00'", "X'FF'", "X'C3A9'", "X'5C78'", "X'0A22'")
    if kind in _INTERVALS:
        pattern, texts = _INTERVALS[kind]
        made = [f"INTERVAL {pattern.format(text)}" for text in texts]
        return made[:2], made
    if kind == "variant":
        return ("parse_json('1')", "parse_json('{\"a\": [1, null]}')"), (
            *("parse_json('null')", "parse_json('\"x\"')", "parse_json('1.50')"),
            *("to_variant_object(named_struct('d', X'00'))", "parse_json('true')"),
        )
    return {
        "float": (("1.5F", "2.0F", "-3.25F"), _FLOATS),
        "double": (("1.5D", "2.0D", "-3.25D"), _DOUBLES),
        "date": (
            [f"date_from_unix_date({n})" for n in (19_000, 20_100)],
            [f"date_from_unix_date({n})" for n in _DAYS],
        ),
        "timestamp": (
            [f"timestamp_micros({n})" for n in (1_700_000_000_000_000, 1_600_000_000_000_000)],
            [f"timestamp_micros({n})" for n in _TIMES],
        ),
        "timestamp_ntz": (
            [_local(n) for n in (1_700_000_000_000_000, 1_600_000_000_000_000)],
            [_local(n) for n in _TIMES],
        ),
    }[kind]


def _local(micros: int) -> str:
    return (
        f"(TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {micros // 1_000_000}) \
+ make_dt_interval(0, 0, 0, {micros % 1_000_000} / 1000000BD))"
    )


PLAIN: Final = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "string"),
    *("binary", "date", "timestamp", "timestamp_ntz"),
)
_RARE: Final = (*_INTERVALS, "variant", "string collate UTF8_LCASE", "string collate UNICODE")


def random_kind(dice: random.Random, depth: int = 0) -> str:
    """A type in Spark's words."""
    roll = dice.random()
    if depth < 2 and roll < 0.25:
        inner = random_kind(dice, depth + 1)
        form = dice.randrange(3)
        if form == 0:
            return f"array<{inner}>"
        if form == 1:
            return f"map<{_plain_kind(dice)},{inner}>"
        names = dice.sample(ODD_NAMES, 2)
        fields = (
            f"{_quoted(n)}:{k}" for n, k in zip(names, (inner, _plain_kind(dice)), strict=True)
        )
        return f"struct<{','.join(fields)}>"
    if depth == 0 and roll > 0.94:
        return dice.choice(_RARE)
    return _plain_kind(dice)


def _plain_kind(dice: random.Random) -> str:
    if dice.random() < 0.2:
        precision, scale = dice.choice(_DECIMALS)
        return f"decimal({precision},{scale})"
    return dice.choice(PLAIN)


def random_value(dice: random.Random, kind: str, oddness: float, nulls: float = 0.12) -> str:
    """A value of any type, cast to it."""
    return f"CAST({_random(dice, _parsed(kind), oddness, nulls)} AS {kind})"


def _parsed(kind: str) -> Any:
    from pyspark.sql.types import DataType

    return DataType.fromDDL(kind)


def _random(dice: random.Random, kind: Any, oddness: float, nulls: float) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    def inside(of: Any, nulls: float = nulls) -> str:
        return f"CAST({_random(dice, of, oddness, nulls)} AS {as_ddl(of)})"

    if dice.random() < nulls:
        return NULL
    if isinstance(kind, ArrayType):
        items = (inside(kind.elementType) for _ in range(dice.choice((0, 1, 2, 3))))
        return f"array({', '.join(items)})"
    if isinstance(kind, MapType):
        keys = {inside(kind.keyType, 0.0) for _ in range(dice.choice((0, 1, 1, 2)))}
        # 0.0 and -0.0 are one key
        apart = [each for each in sorted(keys) if "-0.0" not in each or len(keys) == 1]
        return f"map({', '.join(f'{each}, {inside(kind.valueType)}' for each in apart)})"
    if isinstance(kind, StructType):
        return f"struct({', '.join(inside(each.dataType) for each in kind.fields)})"
    usual, odd = pools(as_ddl(kind))
    return dice.choice(odd if dice.random() < oddness else usual)


def as_ddl(kind: Any) -> str:
    """A type as Spark's parser takes it, with quotes around the names of fields."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"array<{as_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{as_ddl(kind.keyType)},{as_ddl(kind.valueType)}>"
    if isinstance(kind, StructType):
        inner = (f"{_quoted(each.name)}:{as_ddl(each.dataType)}" for each in kind.fields)
        return f"struct<{','.join(inner)}>"
    text: str = kind.simpleString()
    return text


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def random_column(
    dice: random.Random, name: str, kind: str, rows: int, *, unique: bool = False
) -> Column:
    """A column of random values; if they are to be ``unique``, none is null and few are equal."""
    oddness = dice.choice((0.1, 0.5, 0.9))
    values: list[str] = []
    for _ in range(rows):
        made = random_value(dice, kind, oddness, 0.0 if unique else 0.12)
        for _ in range(20 if unique else 0):
            half = values[rows // 2 :] if len(values) >= rows // 2 else values
            if made not in half:
                break
            made = random_value(dice, kind, 0.7, 0.0)
        values.append(made)
    return Column(name, kind, tuple(values))


# DataFrames


def values_of(spark: SparkSession, case: Case, epoch: int | None = None) -> DataFrame:
    """The rows of an epoch or of both, with columns ``c0``, ``c1``, …"""
    size = case.rows // case.epochs
    numbers = range(case.rows) if epoch is None else range(epoch * size, epoch * size + size)
    rows = (f"({', '.join(each.values[n] for each in case.columns)})" for n in numbers)
    names = ", ".join(f"c{n}" for n in range(len(case.columns)))
    return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t({names})").coalesce(1)


def write_source(spark: SparkSession, case: Case, folder: Path) -> None:
    """A file for each epoch."""
    import os

    (folder / "in").mkdir()
    for epoch in range(case.epochs):
        values_of(spark, case, epoch).write.parquet(str(folder / f"raw{epoch}"))
        (written,) = (folder / f"raw{epoch}").glob("*.parquet")
        path = written.rename(folder / "in" / f"{epoch}.parquet")
        os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))


def source_schema(case: Case) -> str:
    return ", ".join(f"c{n} {each.kind}" for n, each in enumerate(case.columns))


def output_of(df: DataFrame, case: Case) -> DataFrame:
    """The columns under their own names."""
    from pyspark.sql import functions as f

    return df.select(*(f.col(f"c{n}").alias(each.name) for n, each in enumerate(case.columns)))
