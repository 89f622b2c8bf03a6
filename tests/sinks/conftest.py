"""Live views and tables on real servers, for tests that attack them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sinks.support.views import World
from tests.support.databases import PostgresServer, RedisServer


@pytest.fixture(params=["rocksdb", "redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_world")
        return
    made = World(f"rocksdb://{tmp_path}/view", None)
    yield made
    made.close()


@pytest.fixture
def redis_world(redis: RedisServer, tmp_path: Path) -> Iterator[World]:
    made = World(f"{redis.url}?namespace={uuid.uuid4().hex}", tmp_path / "staging")
    yield made
    made.close()


@pytest.fixture(scope="module")
def postgres_database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def empty_database(postgres_database: str) -> str:
    """A database without a table: emptying one takes a tenth of the time of making one."""
    from tests.sinks.support.postgres import empty

    empty(postgres_database)
    return postgres_database
