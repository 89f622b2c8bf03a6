"""Every sink that ships here passes the suite that ships with it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from seamark.sinks import FileSink, MemorySink
from seamark.testing import MakeFrame, OpenSink, ReadRows, SinkSuite
from tests.sinks.support.frames import failing_frame, frame
from tests.sinks.support.hand_written import HandWritten, rows_below


class WithoutSpark:
    @pytest.fixture
    def frame(self) -> MakeFrame:
        return frame

    @pytest.fixture
    def failing_frame(self) -> MakeFrame:
        return failing_frame


class TestFileSinkByHand(WithoutSpark, SinkSuite):
    overlaps = 40

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: HandWritten(tmp_path / "rows")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> ReadRows:
        return lambda: rows_below(tmp_path / "rows")


@pytest.mark.warm
@pytest.mark.slow
class TestFileSinkOnSpark(SinkSuite):
    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: FileSink(tmp_path / "rows")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> ReadRows:
        def read() -> list[int]:
            table = ds.dataset(tmp_path / "rows", format="parquet", partitioning="hive").to_table()
            rows: list[int] = table["n"].to_pylist() if "n" in table.column_names else []
            return rows

        return read


class TestMemorySink(WithoutSpark, SinkSuite):
    """There is no other process that could see it, so every handle is the same one."""

    @pytest.fixture
    def sink(self) -> MemorySink:
        return MemorySink()

    @pytest.fixture
    def open_sink(self, sink: MemorySink) -> OpenSink:
        return lambda: sink

    @pytest.fixture
    def visible(self, sink: MemorySink) -> ReadRows:
        return lambda: [row.n for row in sink.rows]
