"""The three backends keep every promise of a progress store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from seamark.progress import open_progress
from seamark.testing import OpenStore, ProgressSuite
from tests.support.databases import RedisServer


class TestMemory(ProgressSuite):
    is_persistent: ClassVar[bool] = False

    @pytest.fixture
    def open_store(self) -> Iterator[OpenStore]:
        url = f"memory://{uuid.uuid4()}"
        with open_progress(url):  # a named one lasts as long as anybody has it
            yield partial(open_progress, url)


class TestRocksDB(ProgressSuite):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return partial(open_progress, f"rocksdb://{tmp_path}/progress")


class TestRedis(ProgressSuite):
    @pytest.fixture
    def open_store(self, redis: RedisServer) -> OpenStore:
        return partial(open_progress, redis.url, namespace=f"test-{uuid.uuid4()}")
