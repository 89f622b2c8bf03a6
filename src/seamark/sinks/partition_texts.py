"""Texts that cannot be a partition: whoever reads the folder again has another one, or none.

Folders of partitions are named as in Hive, where a name without a text, or a certain one, is null.

Tests: ``tests/sinks/test_partition_texts.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark._common.text import backquoted
from seamark.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name that stands for null in the name of a folder."""
_COPYING: Final = "._COPYING_"
"""How the name of a folder ends that readers skip, because Hadoop is still copying it."""
_FOUND: Final = "seamark: a text that cannot be a partition"
_NO_NAMES: Final = ("File name too long", "Nul character not allowed", "PathComponentTooLong")
"""What file systems say of a folder that cannot have the name of a value."""


def without_odd_texts(df: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """The same rows; whatever writes them fails at a text that would be read as null.

    It is a part of the plan, so the rows are not read once more. See :func:`refusing_odd_texts`.
    """
    from pyspark.sql import functions as f

    guarded = guards(df.schema, partition_by)
    return df.withColumns({name: f.expr(text) for name, text in guarded.items()}) if guarded else df


def guards(schema: StructType, partition_by: Sequence[str]) -> dict[str, str]:
    """By column of texts: what has its value in SQL, and raises an error for an odd one. Pure."""
    wanted = {name.lower() for name in partition_by}
    names = [
        field.name
        for field in schema.fields
        if field.name.lower() in wanted and field.dataType.typeName() in ("string", "binary")
    ]
    return {name: _guard(backquoted(name)) for name in names}


def _guard(column: str) -> str:
    text = f"CAST({column} AS STRING)"
    is_null = f"octet_length({column}) = 0 OR {text} = '{NULL_FOLDER}'"
    is_lost = f"NOT is_valid_utf8({text}) OR endswith({text}, '{_COPYING}')"
    return f"CASE WHEN {is_null} OR {is_lost} THEN raise_error('{_FOUND}') ELSE {column} END"


@contextmanager
def refusing_odd_texts(partition_by: Sequence[str], where: str) -> Iterator[None]:
    """Makes the failure of :func:`without_odd_texts` a :class:`RefusedError`."""
    try:
        yield
    except Exception as error:
        if not any(each in str(error) for each in (_FOUND, *_NO_NAMES)):
            raise
        raise RefusedError(
            f"rows have an empty text or {NULL_FOLDER!r}, one that ends in {_COPYING!r}, one that "
            "is not UTF-8, or one that is too long or has a zero byte, in a column that they are "
            "partitioned by: " + ", ".join(partition_by),
            where=where,
            hint="Whoever reads the folders would see null, nothing or another text. Filter such "
            f"rows out, or give them another value: nullif({partition_by[0]}, '').",
        ) from error


def reserved_text(name: str, epoch: int, where: str) -> RefusedError:
    """The error for a partition of a table that some who read or rewrite it take for null."""
    return RefusedError(
        f"epoch {epoch} has rows with {NULL_FOLDER!r} in {name!r}, which the table is "
        "partitioned by",
        where=where,
        hint="Whoever compacts the table would make null of it. Filter such rows out, or give them "
        "another value.",
    )
