"""A table of a real PostgreSQL keeps all that a sink promises."""

from __future__ import annotations

import pytest

from seamark.sinks import PostgresSink
from seamark.testing import OpenSink, ReadRows, SinkSuite
from tests.sinks.support.postgres import KEYED, ROWS, STATEMENTS, numbers, run

pytestmark = pytest.mark.spark


class TestAppend(SinkSuite):
    overlap_calls = STATEMENTS

    @pytest.fixture
    def open_sink(self, empty_database: str) -> OpenSink:
        run(empty_database, ROWS)
        return lambda: PostgresSink(empty_database, "rows", epoch_column="at_epoch")

    @pytest.fixture
    def visible(self, empty_database: str) -> ReadRows:
        return lambda: numbers(empty_database)


@pytest.mark.chaos
class TestUpsert(SinkSuite):
    can_take_back = False
    has_keys = True
    overlap_calls = STATEMENTS

    @pytest.fixture
    def open_sink(self, empty_database: str) -> OpenSink:
        run(empty_database, KEYED)
        return lambda: PostgresSink(empty_database, "rows", mode="upsert", keys="n")

    @pytest.fixture
    def visible(self, empty_database: str) -> ReadRows:
        return lambda: numbers(empty_database)
