"""Sessions of a PostgreSQL database that write to a table ``t``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

    from tests.sources.support.tables import TableStream

Connect = Callable[[], "psycopg.Connection[Any]"]
CREATE = "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)"
INSERT = "INSERT INTO t (v) VALUES ('x') RETURNING id"


def run(session: psycopg.Connection[Any], *statements: str) -> Any:
    """Run statements in the session's transaction; the first value of the last one, if any."""
    cursor = session.cursor()
    for statement in statements:
        cursor.execute(statement.encode())
    row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def ready(session: psycopg.Connection[Any], *statements: str) -> None:
    """Run statements and commit them."""
    run(session, *statements)
    session.commit()


def keys(stream: TableStream) -> list[int]:
    return [row[0] for row in stream.drain()]
