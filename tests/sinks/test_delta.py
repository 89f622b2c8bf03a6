"""A Delta table passes the suite of all sinks, in each mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from deltalake import DeltaTable

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import DamageError
from seamark.sinks import DeltaSink
from seamark.sinks.delta.log import entries_from, epochs_in
from seamark.testing import MakeFrame, OpenSink, ReadRows, SinkSuite
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch, through_json
from tests.sinks.support.deltas import HandWrittenDelta, failing_numbers, numbers, numbers_in
from tests.sinks.support.starting import started


class DeltaSuite(SinkSuite):
    @pytest.fixture
    def visible(self, tmp_path: Path) -> ReadRows:
        return lambda: numbers_in(tmp_path / "rows")


class ByHand:
    @pytest.fixture
    def frame(self) -> MakeFrame:
        return numbers

    @pytest.fixture
    def failing_frame(self) -> MakeFrame:
        return failing_numbers


class TestAppend(ByHand, DeltaSuite):
    overlaps: ClassVar[int] = 8

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenDelta(tmp_path / "rows")


@pytest.mark.slow
class TestAppendToPartitions(ByHand, DeltaSuite):
    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenDelta(tmp_path / "rows", partition_by="word")


@pytest.mark.slow
class TestUpsert(ByHand, DeltaSuite):
    has_keys: ClassVar[bool] = True

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenDelta(tmp_path / "rows", mode="upsert", keys="n")


@pytest.mark.slow
class TestOverwrite(ByHand, DeltaSuite):
    """Each epoch takes the place of the one before: what counts is what each has shown."""

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenDelta(tmp_path / "rows", mode="overwrite")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> ReadRows:
        def read() -> list[int]:
            table = tmp_path / "rows"
            log = FilesystemBlobs(f"{table}/_delta_log")
            entries = entries_from(log, DeltaTable(str(table)).version())
            shown = [s for s in epochs_in(entries, PIPELINE, SINK) if s.taken_by is None]
            if shown:
                assert numbers_in(table) == numbers_in(table, shown[0].entry.version)
            return [n for one in shown for n in numbers_in(table, one.entry.version)]

        return read


@pytest.mark.chaos
@pytest.mark.warm
class TestAppendOnSpark(DeltaSuite):
    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: DeltaSink(tmp_path / "rows")


def test_an_epoch_is_not_shown_empty_because_a_checkpoint_speaks_of_another_output(
    tmp_path: Path,
) -> None:
    """Two outputs of one table have the same tokens; the other one has no rows in this epoch."""
    committables = {}
    for name, rows in {"mine": [1, 2], "others": []}.items():
        sink = started(HandWrittenDelta(tmp_path / "rows"), numbers([]).schema, name=name)
        sink.stage(numbers(rows), replace(epoch(1), sink=name), "a1")
        committables[name] = sink.prepare()
    mine = started(HandWrittenDelta(tmp_path / "rows"), numbers([]).schema, name="mine")
    with pytest.raises(DamageError, match="its sink is 'others', and not 'mine'"):
        mine.commit(committables["others"])
    mine.commit(committables["mine"])
    assert numbers_in(tmp_path / "rows") == [1, 2]


@pytest.mark.parametrize("many", [False, True], ids=["in the checkpoint", "beside the table"])
def test_a_checkpoint_does_not_decide_what_the_log_says_of_files(
    tmp_path: Path, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        monkeypatch.setattr("seamark.sinks.delta.sink._INLINE", 0)
    table = tmp_path / "rows"
    sink = started(HandWrittenDelta(table), numbers([]).schema)
    sink.stage(numbers([1, 2]), epoch(1), "a1")
    committable = through_json(sink.prepare())
    assert (committable["added"] is None) is many
    added = committable["added"] or {"columns": {}, "files": []}
    empty = {**added, "files": []}
    odd = {**added, "files": [{**file, "stats": "["} for file in added["files"]]}
    for forged in (empty, odd):
        other = started(HandWrittenDelta(table), numbers([]).schema)
        with pytest.raises(DamageError, match="another list of the files of epoch 1"):
            other.commit({**committable, "added": forged, "rows": 0})
    assert numbers_in(table) == []
    started(HandWrittenDelta(table), numbers([]).schema).commit(committable)
    assert numbers_in(table) == [1, 2]


def test_a_folder_beside_the_attempts_that_is_none_does_not_stop_a_start(tmp_path: Path) -> None:
    sink = started(HandWrittenDelta(tmp_path / "rows"), numbers([]).schema)
    sink.stage(numbers([1]), epoch(1), "a1")
    (attempt,) = (tmp_path / "rows/_seamark").glob("*/a1")
    stray = attempt.with_name("my notes") / "x.txt"
    stray.parent.mkdir()
    stray.write_text("mine")
    assert sink.leftovers() == ["a1"]
    assert stray.read_text() == "mine"
