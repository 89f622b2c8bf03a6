"""A namespace of its own on the Redis that all tests of a run share."""

from __future__ import annotations

import uuid

import pytest

from tests.support.databases import RedisServer


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def url(redis: RedisServer, namespace: str) -> str:
    return f"{redis.url}?namespace={namespace}"
