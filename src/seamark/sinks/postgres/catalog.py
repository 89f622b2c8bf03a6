"""What a table is, as the catalog of PostgreSQL describes it.

Tests: ``tests/sinks/test_postgres_refusals.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import CheckpointNotFoundError
from seamark.sinks.postgres.columns import TableColumn

if TYPE_CHECKING:
    from seamark.sinks.postgres.connections import Rows, TableAddress

_TABLE: Final = """
SELECT c.oid, c.relkind IN ('r', 'p'), c.relhasrules, row_security_active(c.oid), c.relispartition,
       c.relkind = 'p' AND NOT EXISTS (SELECT 1 FROM pg_partitioned_table p
                                       WHERE p.partrelid = c.oid AND p.partdefid <> 0),
       'u' IN (SELECT p.relpersistence FROM pg_class p WHERE p.oid = c.oid
               OR p.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS: Final = """
SELECT a.attname,
       CASE WHEN coalesce(e.typtype, t.typtype) = 'e' THEN 'text'
            ELSE coalesce(e.typname, t.typname) END,
       e.oid IS NOT NULL,
       CASE WHEN coalesce(e.typname, t.typname) = 'numeric' AND a.atttypmod > 4
            THEN (a.atttypmod - 4) >> 16 END,
       CASE WHEN coalesce(e.typname, t.typname) = 'numeric' AND a.atttypmod > 4
            THEN (((a.atttypmod - 4) & 2047) # 1024) - 1024 END,
       NOT a.attnotnull, a.atthasdef OR a.attidentity <> '',
       a.attgenerated <> '' OR a.attidentity = 'a',
       a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE '%%nextval(%%',
       CASE WHEN coalesce(e.typname, t.typname) = 'varchar' AND a.atttypmod > 4
            THEN a.atttypmod - 4 END,
       CASE WHEN a.atttypmod < 0 THEN NULL
            WHEN coalesce(e.typname, t.typname) IN ('timestamp', 'timestamptz', 'time')
            THEN a.atttypmod
            WHEN coalesce(e.typname, t.typname) = 'interval' THEN
                CASE WHEN (a.atttypmod >> 16) & 32767 <> 32767 THEN 0
                     ELSE least(a.atttypmod & 65535, 6) END END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXES: Final = """
SELECT c.relname, i.indisunique OR i.indisexclusion,
       i.indisvalid AND i.indimmediate AND NOT i.indisexclusion,
       i.indexprs IS NOT NULL OR i.indpred IS NOT NULL,
       array(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = i.indrelid
             AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])),
       array(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = i.indrelid
             AND a.attnum = ANY(i.indkey) AND a.attlen = -1)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s
"""
_FOREIGN_KEYS: Final = """
SELECT n.conname, n.conrelid = %(table)s,
       n.confrelid = %(table)s AND n.confdeltype IN ('a', 'r'),
       array(SELECT a.attname FROM pg_attribute a
             WHERE a.attrelid = n.conrelid AND a.attnum = ANY(n.conkey))
FROM pg_constraint n
WHERE n.contype = 'f' AND (n.conrelid = %(table)s OR n.confrelid = %(table)s)
"""


@dataclass(frozen=True)
class Index:
    """An index of the table."""

    name: str
    is_unique: bool
    is_immediate: bool
    """Whether it can decide which row of a key is replaced."""
    has_expressions: bool
    """Whether it covers a computed value, or only some of the rows."""
    columns: frozenset[str]
    long_columns: frozenset[str]
    """Columns whose values can be too long for it."""


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of the table, or of another one that refers to it."""

    name: str
    is_own: bool
    forbids_deletes: bool
    columns: frozenset[str]


@dataclass(frozen=True)
class Table:
    """A table with all that can refuse a row."""

    oid: int
    """The number that PostgreSQL gave it. A table that is created again has another one."""
    is_plain: bool
    """Neither a view nor a foreign table."""
    has_rules: bool
    has_row_security: bool
    """Whether policies apply to the user who is connected."""
    is_partition: bool
    lacks_default_partition: bool
    is_unlogged: bool
    """Whether it, or one of its partitions, is empty after a crash of the server."""
    columns: tuple[TableColumn, ...]
    indexes: tuple[Index, ...]
    foreign_keys: tuple[ForeignKey, ...]


def read_table(connection: Rows, address: TableAddress) -> Table:
    """What the table is now; :class:`CheckpointNotFoundError` when there is none."""
    row = connection.execute(_TABLE, (address.schema, address.name)).fetchone()
    if row is None:
        raise CheckpointNotFoundError(
            f"there is no table {address.schema}.{address.name}",
            where=address.shown,
            hint="Create it first. A name in quotes keeps its capitals: give it as they are.",
        )
    oid = row[0]
    columns = connection.execute(_COLUMNS, (oid,))
    indexes = connection.execute(_INDEXES, (oid,))
    foreign = connection.execute(_FOREIGN_KEYS, {"table": oid})
    parts = (
        tuple(TableColumn(*column) for column in columns),
        tuple(Index(*_frozen(index)) for index in indexes),
        tuple(ForeignKey(*_frozen(key)) for key in foreign),
    )
    return Table(*(*row, *parts))


def table_oid(connection: Rows, address: TableAddress) -> int | None:
    """The number of the table that has this name now; None when there is none."""
    name = address.identifier().as_string()
    row = connection.execute("SELECT to_regclass(%s)::oid", (name,)).fetchone()
    return None if row is None else row[0]


def _frozen(row: Sequence[Any]) -> list[Any]:
    return [frozenset(value) if isinstance(value, list) else value for value in row]
