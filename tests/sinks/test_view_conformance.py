"""The live view passes the suite of all sinks, on both servers."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import ClassVar

import pytest

from seamark.errors import StoreUnavailableError
from seamark.testing import OpenSink, ReadRows, SinkSuite
from tests.sinks.support.views import HandWrittenView, numbers_in
from tests.sinks.test_conformance import WithoutSpark
from tests.support.databases import RedisServer


class ViewSuite(SinkSuite):
    has_keys: ClassVar[bool] = True
    can_take_back: ClassVar[bool] = False
    overlaps: ClassVar[int] = 8

    @pytest.fixture
    def visible(self, url: str) -> ReadRows:
        def read() -> list[int]:
            try:
                return numbers_in(url)
            except StoreUnavailableError:
                return []  # nobody has opened it to write yet

        return read


class OnRocksDB:
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"rocksdb://{tmp_path}/view"


class OnRedis:
    @pytest.fixture
    def url(self, redis: RedisServer) -> str:
        return f"{redis.url}?namespace={uuid.uuid4().hex}"


class TestViewInRocksDB(OnRocksDB, WithoutSpark, ViewSuite):
    @pytest.fixture
    def open_sink(self, url: str) -> OpenSink:
        return lambda: HandWrittenView(url)


class TestViewInRedis(OnRedis, WithoutSpark, ViewSuite):
    @pytest.fixture
    def open_sink(self, url: str, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenView(url, staging=tmp_path)


class TestViewInRocksDBThatCanGoBack(OnRocksDB, WithoutSpark, ViewSuite):
    can_take_back: ClassVar[bool] = True

    @pytest.fixture
    def open_sink(self, url: str) -> OpenSink:
        return lambda: HandWrittenView(url, undo=True, keep_epochs=20)


class TestViewInRedisThatCanGoBack(OnRedis, WithoutSpark, ViewSuite):
    can_take_back: ClassVar[bool] = True

    @pytest.fixture
    def open_sink(self, url: str, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenView(url, staging=tmp_path, undo=True, keep_epochs=20)
