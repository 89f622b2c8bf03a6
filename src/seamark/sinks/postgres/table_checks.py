"""What is refused before the first epoch, because it could fail after an epoch is decided.

From then on the epoch has happened: other sinks show it, and nothing could be done any more.

Tests: ``tests/sinks/test_postgres_refusals.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks.postgres.columns import check_columns
from seamark.sinks.postgres.staging import REMOVED, TOKEN

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from seamark.sinks.postgres.catalog import Index, Table


@dataclass(frozen=True)
class WriteOptions:
    """How the rows of an output become rows of the table."""

    keys: tuple[str, ...] = ()
    """Empty when rows are appended."""
    delete_where: str | None = None
    epoch_column: str | None = None

    @classmethod
    def of(
        cls,
        mode: str,
        keys: str | Sequence[str],
        delete_where: str | None,
        epoch_column: str | None,
    ) -> WriteOptions:
        """What a user has given; :class:`InvalidInputError` when it contradicts itself."""
        names = (keys,) if isinstance(keys, str) else (*keys,)
        if mode not in ("append", "upsert"):
            raise InvalidInputError(f"mode is 'append' or 'upsert', not {mode!r}")
        if (mode == "upsert") != bool(names):
            raise InvalidInputError("'upsert' needs keys, and 'append' has none")
        if len(set(names)) < len(names):
            raise InvalidInputError(f"a column is named twice in the keys: {', '.join(names)}")
        if mode == "append" and delete_where is not None:
            raise InvalidInputError("only 'upsert' can delete rows")
        if mode == "upsert" and epoch_column is not None:
            raise InvalidInputError("only 'append' can note the epoch: an upsert replaces rows")
        if delete_where is not None and delete_where in names:
            raise InvalidInputError(f"{delete_where!r} cannot be a key and delete_where at once")
        return cls(names, delete_where, epoch_column)


def check_table(table: Table, schema: StructType, options: WriteOptions, where: str) -> list[str]:
    """The columns to write; :class:`RefusedError` when they cannot all be relied upon."""
    _check_kind(table, where)
    if taken := next((c.name for c in table.columns if c.name in (TOKEN, REMOVED)), None):
        raise RefusedError(f"the table has a column {taken!r}, which we use ourselves", where=where)
    columns = check_columns(schema, table.columns, where, without=options.delete_where)
    _check_options(table, schema, options, columns, where)
    _check_indexes(table, options, columns, where)
    for key in table.foreign_keys:
        if key.is_own and key.columns & set(columns):
            raise RefusedError(
                f"the foreign key {key.name} of {_listed(key.columns)} can only be checked when "
                "the epoch is decided",
                where=where,
                hint="Write to a table without it.",
            )
        if key.forbids_deletes and options.delete_where is not None:
            raise RefusedError(
                f"the foreign key {key.name} of another table may forbid to delete a row, which "
                "can only be found out when the epoch is decided",
                where=where,
                hint="Let it cascade (ON DELETE CASCADE or SET NULL), or write without "
                "delete_where.",
            )
    return columns


def _check_kind(table: Table, where: str) -> None:
    problem = hint = None
    if not table.is_plain:
        problem = "this is not an ordinary table"
        hint = "Views and foreign tables cannot be written together with the ledger."
    elif table.has_rules:
        problem = "the table has rules, which may put rows elsewhere"
        hint = "Use triggers instead."
    elif table.has_row_security:
        problem = "row-level security applies, and may refuse rows when the epoch is decided"
        hint = "Write as the owner of the table, or as a role with BYPASSRLS."
    elif table.is_partition:
        problem = "this is a partition, which refuses rows of other partitions"
        hint = "Write to the partitioned table."
    elif table.lacks_default_partition:
        problem = "the table is partitioned, and a row may belong to no partition"
        hint = "CREATE TABLE … PARTITION OF … DEFAULT gives every row a place."
    elif table.is_unlogged:
        problem = "the table, or a partition of it, is unlogged: a crash of the server empties it"
        hint = "ALTER TABLE … SET LOGGED keeps what was committed, also on standbys."
    if problem is not None:
        raise RefusedError(problem, where=where, hint=hint)


def _check_options(
    table: Table, schema: StructType, options: WriteOptions, columns: Sequence[str], where: str
) -> None:
    kinds = {field.name: field.dataType.typeName() for field in schema.fields}
    if lost := next((key for key in options.keys if key not in columns), None):
        raise RefusedError(f"the key {lost!r} is not a column of the output", where=where)
    flag, number = options.delete_where, options.epoch_column
    if flag is not None and kinds.get(flag) != "boolean":
        raise RefusedError(
            f"delete_where names {flag!r}, which is not a boolean column of the output",
            where=where,
        )
    if number is None:
        return
    column = next((c for c in table.columns if c.name == number), None)
    if column is None or column.type != "int8" or column.is_array or column.is_generated:
        raise RefusedError(
            f"epoch_column names {number!r}, which is not a bigint column of the table",
            where=where,
        )
    if number in columns:
        raise RefusedError(
            f"epoch_column names {number!r}, which is a column of the output too", where=where
        )


def _check_indexes(table: Table, options: WriteOptions, columns: Sequence[str], where: str) -> None:
    keys, written = frozenset(options.keys), {*columns, options.epoch_column}

    def is_of_the_keys(index: Index) -> bool:
        return index.columns == keys and not index.has_expressions and index.is_immediate

    unique = [index for index in table.indexes if index.is_unique]
    if keys and not any(is_of_the_keys(index) for index in unique):
        raise RefusedError(
            f"no unique index of the table has exactly the columns {', '.join(options.keys)}",
            where=where,
            hint="Create one, or give the keys that the table has.",
        )
    for index in unique:
        is_touched = index.has_expressions or index.columns & written
        if is_touched and not (keys and is_of_the_keys(index)):
            of = "a computed value" if index.has_expressions else _listed(index.columns)
            raise RefusedError(
                f"no two rows may agree in {of} (index {index.name}), which can only be found out "
                "when the epoch is decided",
                where=where,
                hint="Use mode='upsert' with the columns of the index as keys, or drop the index.",
            )


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
