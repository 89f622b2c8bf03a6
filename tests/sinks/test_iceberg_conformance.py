"""A table of Iceberg keeps all that a sink promises, in each mode, in a real SQL catalog."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from seamark.testing import MakeFrame, OpenSink, ReadRows, SinkSuite
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten


class IcebergSuite(SinkSuite):
    @pytest.fixture
    def frame(self) -> MakeFrame:
        return iceberg.frame

    @pytest.fixture
    def failing_frame(self) -> MakeFrame:
        return iceberg.failing_frame

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        iceberg.make_table(tmp_path)
        return tmp_path

    @pytest.fixture
    def visible(self, folder: Path) -> ReadRows:
        return lambda: iceberg.numbers(folder)


class TestAppend(IcebergSuite):
    overlaps: ClassVar[int] = 6

    @pytest.fixture
    def open_sink(self, folder: Path) -> OpenSink:
        return lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE)


@pytest.mark.slow
class TestUpsert(IcebergSuite):
    has_keys: ClassVar[bool] = True

    @pytest.fixture
    def open_sink(self, folder: Path) -> OpenSink:
        return lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE, "upsert", keys="n")


@pytest.mark.slow
class TestOverwrite(IcebergSuite):
    @pytest.fixture
    def open_sink(self, folder: Path) -> OpenSink:
        return lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE, "overwrite")

    @pytest.fixture
    def visible(self, folder: Path) -> ReadRows:
        return lambda: iceberg.numbers_of_all_epochs(folder)
