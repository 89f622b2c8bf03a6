"""Showing a staged epoch: the checks before it is decided, and the statements that move its rows.

These run with the search path of the user, so functions and operators are named with their schema:
others may have made some that fit better.

Tests: ``tests/sinks/test_postgres_columns.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seamark.errors import DamageError, RefusedError
from seamark.sinks.contract import Identity
from seamark.sinks.postgres.connections import first_line, may_pass, with_values
from seamark.sinks.postgres.staging import REMOVED, TOKEN, Staging

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

    from seamark.sinks.postgres.catalog import Table
    from seamark.sinks.postgres.connections import Rows
    from seamark.sinks.postgres.table_checks import WriteOptions

_LONG: Final = 2000
"""Bytes that an index may refuse; a B-tree takes 2704."""
_OURS: Final = "{staging} s WHERE s.{token} = ANY(%(tokens)s::uuid[]) AND {only}"
"""The rows of the tries that count."""
_DIGEST: Final = "1"
"""The version of what a digest is made of."""
_DIGESTED: Final = (
    *("pipeline", "sink", "timeline", "epoch", "fingerprint", "attempt", "plan"),
    *("columns", "tokens", "rows", "keys", "has_removals", "epoch_column"),
)


class Prepared(Identity, frozen=True):
    """What another process needs to show an epoch."""

    pipeline: str
    sink: str
    columns: list[str]
    tokens: list[str]
    rows: int
    keys: list[str]
    has_removals: bool
    epoch_column: str | None
    plan: dict[str, Any] | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what is shown, with the version of what it is made of."""
        digested = [getattr(self, name) for name in _DIGESTED]
        data = msgspec.json.encode(digested, order="deterministic")
        return f"{_DIGEST}-{hashlib.sha256(data).hexdigest()}"


def require_same_keys(prepared: Prepared, options: WriteOptions, where: str) -> None:
    """:class:`RefusedError` for other keys than the sink's: they decide which rows are changed."""
    removes = options.delete_where is not None
    if (prepared.keys, prepared.has_removals) != ([*options.keys], removes):
        raise RefusedError(
            f"epoch {prepared.epoch} was staged with other keys, or with another delete_where, "
            "than the sink has now",
            where=where,
            hint="Start once with those of before, so that the epoch can be finished.",
        )


def require_staged(connection: Rows, staging: Staging, prepared: Prepared) -> None:
    """:class:`DamageError` when not all that was prepared is staged, or something else was.

    From here on nobody drops it.
    """
    from psycopg.errors import UndefinedTable

    where, epoch = staging.address.shown, prepared.epoch
    gone = DamageError(
        f"the rows of epoch {epoch} are neither shown nor staged any more",
        where=where,
        hint="Another process has taken this one for dead and cleared them away: end this one. If "
        "there is none, somebody has dropped the staging table: roll the pipeline back to the "
        "epoch before.",
    )
    if prepared.attempt not in staging.attempts(connection):
        raise gone
    try:
        noted = staging.noted(connection, prepared.attempt)
        staged = staging.rows(connection, prepared.attempt, prepared.tokens)
    except UndefinedTable:  # dropped since it was looked for
        raise gone from None
    # an earlier Seamark has noted nothing
    if noted and noted.startswith(f"{_DIGEST}-") and noted != prepared.digest:
        raise DamageError(
            f"the checkpoint does not say of epoch {epoch} what was prepared: it has other tokens, "
            "rows or columns",
            where=where,
            hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back to "
            "the epoch before.",
        )
    if staged != prepared.rows:
        raise DamageError(
            f"{staged} of the {prepared.rows} rows of epoch {epoch} are staged",
            where=where,
            hint="A failover to a standby that lacked them, or somebody, has removed the others. "
            "Nothing was shown. Roll the pipeline back to the epoch before; it then writes these "
            "rows again.",
        )


def check_staged(connection: Rows, table: Table, staging: Staging, prepared: Prepared) -> None:
    """:class:`RefusedError` when the staged rows could not be shown."""
    if prepared.keys:
        _check_keys(connection, table, staging, prepared)
    _check_indexes(connection, table, staging, prepared)


def _check_keys(connection: Rows, table: Table, staging: Staging, prepared: Prepared) -> None:
    parts, tokens = _parts(staging, prepared, table), {"tokens": prepared.tokens}
    twice = connection.execute(
        with_values(
            f"SELECT {{keys}} FROM {_OURS} AND ({{keys}}) {{equal}} ANY"
            f" (SELECT {{keys}} FROM {_OURS} GROUP BY {{keys}} HAVING pg_catalog.count(*) > 1)"
            " GROUP BY {keys} HAVING pg_catalog.count(DISTINCT ROW({all})::text) > 1 LIMIT 1",
            **parts,
        ),
        tokens,
    ).fetchone()
    if twice is not None:
        raise RefusedError(
            f"epoch {prepared.epoch} has different rows for the key {_shown(prepared.keys, twice)}",
            where=staging.address.shown,
            hint="Aggregate or deduplicate the output by its keys.",
        )
    nameless = connection.execute(
        with_values(f"SELECT 1 FROM {_OURS} AND ({{no_key}}) LIMIT 1", **parts), tokens
    ).fetchone()
    if nameless is not None:
        raise RefusedError(
            f"epoch {prepared.epoch} has a row whose key is null",
            where=staging.address.shown,
            hint="Filter such rows out: for a unique index no two of them are equal.",
        )


def _check_indexes(connection: Rows, table: Table, staging: Staging, prepared: Prepared) -> None:
    """Try rows that an index may refuse on a copy of the table, which is rolled back.

    These are all rows when an index computes something, and otherwise those with long values.
    """
    from psycopg import Error
    from psycopg.sql import SQL

    computes = any(index.has_expressions for index in table.indexes)
    names = sorted({name for index in table.indexes for name in index.long_columns})
    if computes:
        parts = _parts(staging, prepared, table)
    elif names:
        parts = _parts(staging, prepared, table, only=_long_rows(names))
    else:
        return
    tokens = {"tokens": prepared.tokens}
    any_row = with_values(f"SELECT 1 FROM {_OURS} LIMIT 1", **parts)
    if connection.execute(any_row, tokens).fetchone() is None:
        return
    trial = staging.address.identifier(f"{staging.name(prepared.attempt)}_trial")
    like = SQL(
        "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY"
        " INCLUDING INDEXES)"
    )
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(like.format(trial, parts["target"]))
            connection.execute(_insertion(prepared, parts | {"target": trial}), tokens)
    except Error as error:
        if may_pass(error):
            raise
        raise RefusedError(
            f"epoch {prepared.epoch} has a row that an index of the table refuses: "
            f"{first_line(error)}",
            where=staging.address.shown,
            hint="Leave such rows out, shorten the value, or drop the index.",
        ) from None


def _long_rows(names: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier, Literal

    size = SQL("coalesce(pg_catalog.pg_column_size({}), 0)")
    sizes = [size.format(Identifier(name)) for name in names]
    return SQL("{} > {}").format(SQL(" + ").join(sizes), Literal(_LONG))


def moving(staging: Staging, prepared: Prepared, table: Table | None) -> list[Composed]:
    """The statements that show the rows; they take the parameter ``tokens``."""
    parts = _parts(staging, prepared, table)
    statements = [_insertion(prepared, parts), with_values("DROP TABLE {staging}", **parts)]
    if prepared.has_removals:
        delete = f"DELETE FROM {{target}} t USING {_OURS} AND {{same_key}} AND {{removed}}"
        statements.insert(0, with_values(delete, **parts))
    return statements


def _insertion(prepared: Prepared, parts: Mapping[str, Composable]) -> Composed:
    # rows of one key are equal, or they would have been refused
    chosen = "DISTINCT ON ({keys}) {into}" if prepared.keys else "{into}"
    statement = f"INSERT INTO {{target}} ({{into}}) SELECT {chosen} FROM {_OURS}"
    if prepared.has_removals:
        statement += " AND NOT {removed}"
    if prepared.keys:
        replaces = len(prepared.columns) > len(prepared.keys)
        statement += " ON CONFLICT ({keys}) DO "
        statement += "UPDATE SET {changes}" if replaces else "NOTHING"
    return with_values(statement, **parts)


def _parts(
    staging: Staging, prepared: Prepared, table: Table | None, only: Composable | None = None
) -> dict[str, Composable]:
    """What statements are put together from; ``only`` narrows the rows down."""
    from psycopg.sql import SQL, Identifier

    def joined(names: Sequence[str], each: str = "{0}", by: str = ", ") -> Composed:
        return SQL(by).join(SQL(each).format(Identifier(name)) for name in names)

    columns = () if table is None else table.columns
    # citext has an operator of its own, in whichever schema
    of_extension = any(c.name in prepared.keys and c.type == "citext" for c in columns)
    equal = "=" if table is None or of_extension else "OPERATOR(pg_catalog.=)"
    others = [name for name in prepared.columns if name not in prepared.keys]
    number = [prepared.epoch_column] if prepared.epoch_column else []
    removed = [REMOVED] if prepared.has_removals else []
    return {
        "target": staging.address.identifier(),
        "staging": staging.address.identifier(staging.name(prepared.attempt)),
        "into": joined([*prepared.columns, *number]),
        "all": joined([*prepared.columns, *removed]),
        "keys": joined(prepared.keys),
        "no_key": joined(prepared.keys, "{0} IS NULL", " OR "),
        "same_key": joined(prepared.keys, f"t.{{0}} {equal} s.{{0}}", " AND "),
        "equal": SQL(equal),
        "changes": joined(others, "{0} = EXCLUDED.{0}"),
        "removed": SQL("s.{}").format(Identifier(REMOVED)),
        "token": Identifier(TOKEN),
        "only": SQL("true") if only is None else only,
    }


def _shown(keys: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{key}={value!r}"[:80] for key, value in zip(keys, values, strict=True))
