"""How many rows there are and which, in one short text that does not depend on their order.

Each value becomes a number of 64 bits: Spark's ``xxhash64``, seeded with a hash of the names and
types of all columns and with the place of its own. The number of a row is the exclusive or of them.
A processor computes these side by side; in one hash over all columns each waits for the one before.
The digest is the sum of two hashes of each row's number over all rows, modulo 2^64. So digests of
parts add up to that of the whole, and no partitioning, order, time zone or ANSI setting changes
them.

It finds what happens by accident or by hand: a row that is lost, doubled or edited leaves the
digest as it was with a chance of 2^-64. It is no signature: xxhash64 is no cryptographic hash, and
who knows all of this can make up other rows with the same digest.

Tests: ``tests/spark/test_row_digests.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from seamark._common.text import backquoted
from seamark.errors import InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import OutputDigest
from seamark.spark.type_names import FIXED_SIZE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_WORD: Final = 1 << 64
_LANE_BITS: Final = 22
"""Numbers are added in lanes of this many bits: no sum overflows before 2^41 rows, also in ANSI
mode, where an overflow is an error."""
_LANES: Final = 3
_MASK: Final = (1 << _LANE_BITS) - 1
_ROWS: Final = "rows"
_GROUP: Final = "group"
_NUMBER: Final = "_seamark_row_number"
SECOND: Final = 0x5EA3A7C0DE15EA1
"""Seeds the second hash of a row's number."""
FORMULA: Final = 2
"""The formula of these digests. Version 1 hashed one column after the other."""


class RowDigest(msgspec.Struct, frozen=True):
    """How many rows, and a digest of which: equal for equal multisets of rows of one schema.

    >>> RowDigest.empty() + RowDigest.empty() == RowDigest.empty()
    True
    """

    rows: int
    digest: str
    """32 lower-case hexadecimal digits."""

    @classmethod
    def empty(cls) -> Self:
        """The digest of no rows, whatever their schema."""
        return cls.of_sums(0, (0, 0))

    @classmethod
    def of_sums(cls, rows: int, sums: Iterable[int]) -> Self:
        """The digest of so many rows, given the sums of their first and of their second numbers."""
        return cls(rows, "".join(f"{word % _WORD:016x}" for word in sums))

    def __add__(self, other: RowDigest) -> RowDigest:
        """The digest of the rows of both."""
        sums = zip(_words(self.digest), _words(other.digest), strict=True)
        return RowDigest.of_sums(self.rows + other.rows, (a + b for a, b in sums))

    def __sub__(self, part: RowDigest) -> RowDigest:
        """The digest of what is left without ``part``."""
        sums = zip(_words(self.digest), _words(part.digest), strict=True)
        return RowDigest.of_sums(self.rows - part.rows, (a - b for a, b in sums))


def _words(digest: str) -> tuple[int, int]:
    if len(digest) != 32:
        raise InvalidInputError(f"a digest of rows has 32 digits, not {len(digest)}")
    return int(digest[:16], 16), int(digest[16:], 16)


def digest_of(rows: DataFrame, columns: DigestColumns | None = None) -> RowDigest:
    """The digest of all rows, by one action.

    ``columns`` are those of the schema, if they are at hand. :class:`InvalidInputError` for
    columns that have no digest, see :func:`why_undigestible`.
    """
    columns = columns or digest_columns(rows.schema)
    first = rows.select(columns.number).agg(*columns.sums).first()
    assert first is not None, "an aggregation without a key has one row"
    return _from_sums(first.asDict())


def digests_by(rows: DataFrame, column: str) -> dict[Any, RowDigest]:
    """By the value of one column: the digest of the rows without that column, by one action."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    others = StructType([field for field in rows.schema.fields if field.name != column])
    columns, group = digest_columns(others), f.col(backquoted(column)).alias(_GROUP)
    groups = rows.select(group, columns.number).groupBy(_GROUP).agg(*columns.sums)
    return {row[_GROUP]: _from_sums(row.asDict()) for row in groups.collect()}


def comparable_digest(manifest: CheckpointManifest, output: str) -> OutputDigest | None:
    """The digest of an output in an epoch; None for none, and for one of another formula."""
    recorded = (manifest.output_digests or {}).get(output)
    return recorded if recorded is not None and recorded.formula == FORMULA else None


def comparable_digests(manifest: CheckpointManifest) -> dict[str, OutputDigest]:
    """The same by output, for all that have one."""
    recorded = (manifest.output_digests or {}).items()
    return {output: each for output, each in recorded if each.formula == FORMULA}


def why_undigestible(schema: StructType) -> str | None:
    """Why rows of this schema have no digest; None when they have one."""
    return next(_obstacles(schema, ""), None)


def schema_text(schema: StructType) -> str:
    """Names and types in one text: the same for what was written and for what is read back.

    Whether a column may be null is left out, since most formats forget it; so are the lengths and
    collations of strings.
    """
    columns = [[field.name, _type_of(field.dataType)] for field in schema.fields]
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


def _type_of(kind: DataType) -> object:
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return {"struct": [[field.name, _type_of(field.dataType)] for field in kind.fields]}
    if isinstance(kind, t.ArrayType):
        return {"array": _type_of(kind.elementType)}
    if isinstance(kind, t.MapType):
        return {"map": [_type_of(kind.keyType), _type_of(kind.valueType)]}
    if isinstance(kind, t.StringType | t.CharType | t.VarcharType):
        return "string"
    return kind.simpleString()


def _obstacles(kind: DataType, where: str) -> Iterator[str]:
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        names = [field.name.lower() for field in kind.fields]
        if twice := next((name for name in names if names.count(name) > 1), None):
            yield f"{where or 'the row'} has two fields named {twice!r}"
        for field in kind.fields:
            yield from _obstacles(field.dataType, f"{where}.{field.name}" if where else field.name)
    elif isinstance(kind, t.ArrayType):
        yield from _obstacles(kind.elementType, where)
    elif isinstance(kind, t.MapType):
        yield from _obstacles(kind.keyType, where)
        yield from _obstacles(kind.valueType, where)
    elif kind.typeName() not in _DIGESTIBLE:
        yield f"column {where!r} has the type {kind.simpleString()}"


_DIGESTIBLE: Final = FIXED_SIZE | {
    "void",
    "string",
    "char",
    "varchar",
    "binary",
    "time",
    "interval",
    "daytimeinterval",
    "yearmonthinterval",
    "variant",
}


# the sums


class DigestColumns(NamedTuple):
    """How the digest of rows is computed. It is made of names, and serves for one schema."""

    number: Column
    """The number of a row, which both hashes are made of."""
    sums: list[Column]
    """What is aggregated over these: how many there are, and each lane of both sums."""


def digest_columns(schema: StructType) -> DigestColumns:
    """How the digest of rows of a schema is computed.

    :class:`InvalidInputError` for columns that have no digest.
    """
    from pyspark.sql import functions as f

    if problem := why_undigestible(schema):
        raise InvalidInputError(f"these rows have no digest: {problem}")
    number = _in_pairs([*_hashed_columns(schema)] or ["0L"])
    hashes = (("a", f"xxhash64({_NUMBER})"), ("b", f"xxhash64({SECOND}L, {_NUMBER})"))
    lanes = [
        f"sum(shiftrightunsigned({word}, {lane * _LANE_BITS}) & {_MASK}L) AS {name}{lane}"
        for name, word in hashes
        for lane in range(_LANES)
    ]
    sums = [f.expr(text) for text in (f"count(1) AS {_ROWS}", *lanes)]
    return DigestColumns(f.expr(number).alias(_NUMBER), sums)


def _hashed_columns(schema: StructType) -> Iterator[str]:
    """The hash of each column, in SQL. A null leaves the seed, which no other column has."""
    text = schema_text(schema)
    for place, field in enumerate(schema.fields):
        digest = hashlib.sha256(f"{place}\n{text}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") >> 1
        is_null, *parts = _parts(backquoted(field.name), field.dataType, depth=0)
        values = parts if _is_one_value(field.dataType) else [is_null, *parts]
        yield f"xxhash64({', '.join([f'{seed}L', *values])})"


def _is_one_value(kind: DataType) -> bool:
    from pyspark.sql import types as t

    return not isinstance(kind, t.StructType | t.ArrayType | t.MapType)


def _in_pairs(numbers: list[str]) -> str:
    """The exclusive or of all, nested as little as can be: Spark recurses into what is nested."""
    while len(numbers) > 1:
        pairs = zip_longest(numbers[::2], numbers[1::2])
        numbers = [one if other is None else f"({one} ^ {other})" for one, other in pairs]
    return numbers[0]


def _from_sums(sums: Mapping[str, Any]) -> RowDigest:
    words = (
        sum((sums[f"{name}{lane}"] or 0) << (lane * _LANE_BITS) for lane in range(_LANES))
        for name in "ab"
    )
    return RowDigest.of_sums(sums[_ROWS] or 0, words)


def _parts(value: str, kind: DataType, depth: int) -> Iterator[str]:
    """What is hashed of a value, one after the other, in SQL.

    ``xxhash64`` passes over nulls and does not tell where an array ends, so both are said.
    """
    from pyspark.sql import types as t

    yield f"{value} IS NULL"
    each = f"each{depth}"
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            yield from _parts(f"{value}.{backquoted(field.name)}", field.dataType, depth)
    elif isinstance(kind, t.ArrayType):
        parts = ", ".join(_parts(each, kind.elementType, depth + 1))
        yield f"array_size({value})"
        yield f"transform({value}, {each} -> struct({parts}))"
    elif isinstance(kind, t.MapType):
        key = _parts(f"{each}.key", kind.keyType, depth + 1)
        parts = ", ".join([*key, *_parts(f"{each}.value", kind.valueType, depth + 1)])
        entries = f"map_entries({value})"
        yield f"array_size({entries})"
        # a map has no order, and its entries come in any
        yield f"array_sort(transform({entries}, {each} -> xxhash64({parts})))"
    elif kind.typeName() == "variant":
        yield f"to_json({value}, map('timeZone', 'UTC'))"
    elif isinstance(kind, t.StringType) and kind != t.StringType():
        yield f"CAST({value} AS BINARY)"  # a collation makes different texts equal
    else:
        yield value
