"""A live view on either server, for tests that attack it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sinks.support.views import World
from tests.support.databases import RedisServer


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
