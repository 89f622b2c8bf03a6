"""A PostgreSQL database of its own for each test, sessions in it, and streams that read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.sources.support.tables import TableStream, options_of

if TYPE_CHECKING:
    from tests.sources.support.sessions import Connect
    from tests.support.databases import PostgresServer


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Sessions, each with its own transactions; all are closed in the end."""
    import psycopg

    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(dsn))


@pytest.fixture
def streams(dsn: str) -> Iterator[Callable[..., TableStream]]:
    """Processes that read the table."""
    opened: list[TableStream] = []

    def stream(*args: Any, **options: str) -> TableStream:
        opened.append(TableStream(options_of("psycopg", dsn, **options), *args))
        return opened[-1]

    yield stream
    for each in opened:
        each.source._database.close()
