"""Where a table of PostgreSQL is, and transactions in its database.

Tests: ``tests/sinks/test_postgres_refusals.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import (
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from psycopg import Connection, Error
    from psycopg.sql import Composable, Composed, Identifier

    Rows = Connection[tuple[Any, ...]]

APPLICATION: Final = "seamark"
LONGEST_NAME: Final = 63
"""Bytes of a name; PostgreSQL cuts off the rest without an error."""

_KNOWS_PRIMARY: Final = 140_000
_DEFAULTS: Final[Mapping[str, int | str]] = {
    "connect_timeout": 10,
    # a server that is gone without a word is noticed within two minutes
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 120_000,
}
_SETTINGS: Final = """
SET LOCAL search_path = pg_catalog;
SELECT set_config(name, value, true) FROM (VALUES
    ('statement_timeout', '0'), ('transaction_timeout', '0'), ('lock_timeout', '0'),
    ('idle_in_transaction_session_timeout', '15s'), ('array_nulls', 'on'),
    ('synchronous_commit', 'on')) AS ours (name, value)
WHERE current_setting(name, true) IS NOT NULL
AND NOT (name = 'synchronous_commit' AND current_setting(name, true) IN ('on', 'remote_apply'))
AND NOT (name LIKE 'idle%' AND current_setting(name, true) <> '0')
"""
_PASSING: Final = ("08", "40", "53", "57", "25P03", "55P03")
"""Beginnings of SQLSTATE that say nothing against trying again."""


@dataclass(frozen=True)
class TableAddress:
    """A table in a database."""

    dsn: str = field(repr=False)
    """How to connect. It may hold a password."""
    schema: str
    name: str
    shown: str
    """Where the table is, without anything secret."""

    @classmethod
    def of(cls, dsn: str, table: str | tuple[str, str]) -> TableAddress:
        """The table that a user names; :class:`InvalidInputError` when that cannot be one."""
        schema, name = _names(table)
        given = _options(dsn)
        server = f"{given.get('host') or 'localhost'}:{given.get('port') or 5432}"
        shown = f"{server}/{given.get('dbname') or ''}/{schema}.{name}"
        from psycopg import conninfo, pq

        defaults = dict(_DEFAULTS)
        if pq.version() >= _KNOWS_PRIMARY:  # of several hosts, or after a failover
            defaults["target_session_attrs"] = "primary"
        # rows are sent in UTF-8, whatever the database or the environment prefers
        forced = {"client_encoding": "UTF8", "application_name": APPLICATION}
        return cls(conninfo.make_conninfo("", **defaults | given | forced), schema, name, shown)

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        """A transaction on a connection of its own, committed at the end."""
        with translated(self.shown), connected(self.dsn) as connection:
            yield connection

    def identifier(self, name: str | None = None) -> Identifier:
        """The quoted name of a table of the schema; by default of the table itself."""
        from psycopg.sql import Identifier

        return Identifier(self.schema, self.name if name is None else name)


@contextmanager
def connected(dsn: str) -> Iterator[Rows]:
    """A connection in a transaction that is committed at the end.

    Settings of the server or of the user that would lose rows or stop halfway do not count. A
    session that hangs in its transaction is ended by the server, so that a successor can go on.

    Functions and operators are PostgreSQL's own: others may have made some that fit a call better,
    in a schema of the user's search path, and they would be run with the user's rights.
    """
    import psycopg

    with psycopg.connect(dsn, prepare_threshold=None) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        connection.execute(_SETTINGS)
        yield connection


@contextmanager
def in_own_path(connection: Rows) -> Iterator[None]:
    """For statements on rows of the user's table: with the search path that the user has set.

    Types such as ``citext``, triggers and checks may need it, as with any client.
    """
    connection.execute("SET LOCAL search_path TO DEFAULT")
    yield
    connection.execute("SET LOCAL search_path = pg_catalog")


def with_values(statement: str, **parts: Composable) -> Composed:
    """A statement made of parts, to be run with values: a ``%`` in a name is no placeholder."""
    from psycopg.sql import SQL

    escaped = {name: SQL(part.as_string().replace("%", "%%")) for name, part in parts.items()}
    return SQL(statement).format(**escaped)


def _options(dsn: str) -> dict[str, Any]:
    try:
        import psycopg
        from psycopg import conninfo
    except ModuleNotFoundError:
        raise InvalidInputError(
            "a PostgresSink needs psycopg", hint="pip install 'seamark[postgres]'"
        ) from None
    problem = InvalidInputError(
        "the address of the database cannot be read",
        hint="It looks like postgresql://host:5432/database or 'host=… dbname=…'. In a URL, "
        "characters such as @ : / in a user name or password are written as %40 %3A %2F.",
    )
    try:
        given: dict[str, Any] = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise problem from None
    # libpq takes the rest of such a password for a host, a port or a database
    host, port, database = (str(given.get(name) or "") for name in ("host", "port", "dbname"))
    if "@" in host + database or not set(port) <= set("0123456789,"):
        raise problem
    return given


def _names(table: str | tuple[str, str]) -> tuple[str, str]:
    if isinstance(table, str):
        schema, dot, name = table.rpartition(".")
        if "." in schema or (dot and not schema):
            name = ""
        schema = schema or "public"
    else:
        schema, name = table
    for part in (schema, name):
        if not part or "\0" in part:
            raise InvalidInputError(
                f"{table!r} is not the name of a table",
                hint="It is 'table', 'schema.table' or ('schema', 'table'), without quotes and "
                "exactly as it was created.",
            )
        if len(part.encode()) > LONGEST_NAME:
            raise InvalidInputError(
                f"{part!r} is longer than the {LONGEST_NAME} bytes that a name may have",
                hint="PostgreSQL has cut it off when the table was created. Give what it kept.",
            )
    return schema, name


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of psycopg into ours; :class:`StoreUnavailableError` for what may pass."""
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise RefusedError(
            f"PostgreSQL does not allow it: {first_line(error)}",
            where=where,
            hint="The user needs INSERT, UPDATE, DELETE and SELECT on the table, and CREATE in its "
            "schema for the ledger and the staging tables.",
        ) from None
    except psycopg.errors.UndefinedTable as error:
        raise DamageError(
            f"PostgreSQL: {first_line(error)}",
            where=where,
            hint="It was there a moment ago. A staging table is cleared away by a process that "
            "takes this one for dead: end this one then. Otherwise, who has dropped the table?",
        ) from None
    except psycopg.Error as error:
        kind = StoreUnavailableError if may_pass(error) else SeamarkError
        raise kind(f"PostgreSQL: {first_line(error)}", where=where) from None


def may_pass(error: Error) -> bool:
    """Whether trying again may help."""
    from psycopg import InterfaceError, OperationalError

    if error.sqlstate is None:  # nothing was answered
        return isinstance(error, OperationalError | InterfaceError)
    return error.sqlstate.startswith(_PASSING)


def first_line(error: Exception) -> str:
    """What happened, without the details, which quote rows."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
