"""Epochs are merged in place: each row is seen once at any moment, whatever dies, whoever reads."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import duckdb
import pytest

import seamark
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.sinks import (
    Committable,
    FileSink,
    ReadPoint,
    compaction,
    epoch_ranges,
    read_receipts,
)
from seamark.sinks.epoch_ranges import MergedSpans
from seamark.sinks.target_checks import claim_folder
from seamark.store import CheckpointStore, open_store
from seamark.testing import MakeFrame, OpenSink, ReadRows, SinkSuite
from seamark.testing.conformance.sink_examples import NEW, OLD, PIPELINE, SINK, epoch, receipt
from tests.sinks.support.frames import failing_frame, frame
from tests.sinks.support.hand_written import HandRanged, mount_sinks, rows_below, rows_on
from tests.sinks.test_crash_everywhere import images
from tests.support.disk import SimulatedDisk
from tests.support.recording import Crash, Recording
from tests.support.slow_cases import slow_except

PATH = "/lake/rows"
EPOCHS = 10
EMPTY = (3, 4)
"""Epochs without a row, at the end of the first range."""


def rows_of(number: int) -> list[int]:
    return [] if number in EMPTY else [number * 10 + at for at in range(3)]


EVERY = Counter(row for number in range(1, EPOCHS + 1) for row in rows_of(number))


def fill(path: str | Path, epochs: int = EPOCHS) -> dict[int, Committable]:
    sink = HandRanged(path)
    sink.open(PIPELINE, SINK, None)
    committables = {}
    for number in range(1, epochs + 1):
        sink.stage(frame(rows_of(number)), epoch(number), f"a{number}")
        committables[number] = sink.prepare()
        sink.commit(committables[number])
    return committables


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "rows")
    return tmp_path / "rows"


class TestFileSinkInRanges(SinkSuite):
    @pytest.fixture
    def frame(self) -> MakeFrame:
        return frame

    @pytest.fixture
    def failing_frame(self) -> MakeFrame:
        return failing_frame

    @pytest.fixture
    def open_sink(self, tmp_path: Path) -> OpenSink:
        return lambda: HandRanged(tmp_path / "rows")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> ReadRows:
        return lambda: rows_below(tmp_path / "rows")


# what is merged


def test_closed_ranges_become_one_folder_each_with_the_same_rows(path: Path) -> None:
    assert HandRanged(path).merge(until=8) == [4, 8]
    assert Counter(rows_below(path)) == EVERY
    folders = sorted(str(each.relative_to(path)) for each in path.glob("upto=*/epoch=*"))
    assert folders == [
        "upto=000004/epoch=000002",  # the last one that has a file
        "upto=000008/epoch=000008",
        "upto=000012/epoch=000009",
        "upto=000012/epoch=000010",
    ]
    assert HandRanged(path).merge(until=8) == [], "once is enough"
    assert [*path.glob("_seamark/compacting/*")] == []


@pytest.mark.parametrize(("until", "merged"), [(0, []), (3, []), (4, [4]), (7, [4]), (99, [4, 8])])
def test_nothing_is_merged_that_could_still_be_taken_back_or_written(
    path: Path, until: int, merged: list[int]
) -> None:
    assert HandRanged(path).merge(until) == merged
    assert Counter(rows_below(path)) == EVERY


def test_a_range_without_a_row_or_with_one_epoch_stays_as_it_is(tmp_path: Path) -> None:
    sink = HandRanged(tmp_path / "rows")
    sink.open(PIPELINE, SINK, None)
    for number, rows in ((1, []), (2, []), (6, [6]), (9, [9])):
        sink.stage(frame(rows), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    assert sink.merge(until=99) == []


def test_everything_is_known_about_merged_epochs(path: Path) -> None:
    HandRanged(path).merge(until=8)
    sink = HandRanged(path)
    for number in range(1, EPOCHS + 1):
        found = sink.committed("", number)
        assert found is not None
        assert (found.epoch, found.attempt) == (number, f"a{number}")
    assert sink.newest() == receipt(10, "a10")
    assert [one.epoch for one in read_receipts(path)] == [*range(1, EPOCHS + 1)]


def test_a_merged_epoch_can_be_committed_again_and_no_other_in_its_place(tmp_path: Path) -> None:
    committables = fill(tmp_path / "rows")
    sink = HandRanged(tmp_path / "rows")
    sink.merge(until=8)
    for number in (1, 2, 3, 8):
        HandRanged(tmp_path / "rows").commit(committables[number])
    assert Counter(rows_below(tmp_path / "rows")) == EVERY
    sink.stage(frame([666]), epoch(1, NEW), "b1")
    other = sink.prepare()
    with pytest.raises(LineageError):
        HandRanged(tmp_path / "rows").commit(other)
    assert Counter(rows_below(tmp_path / "rows")) == EVERY


def test_the_record_of_merged_epochs_is_read_once_for_all_that_a_start_asks_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HandRanged(path).merge(until=8)
    read: list[str] = []
    read_merged = epoch_ranges.read_merged

    def noted(folder: str) -> epoch_ranges.MergedEpochs | None:
        read.append(os.path.basename(folder))
        return read_merged(folder)

    monkeypatch.setattr(epoch_ranges, "read_merged", noted)
    sink = HandRanged(path)
    before = {number: sink.committed("t", number) for number in range(1, EPOCHS + 1)}
    assert all(found is not None and found.epoch == n for n, found in before.items())
    assert read == ["upto=000004", "upto=000008"]
    others = [receipt(number, "another") for number in (5, 6, 7, 8)]
    (path / "upto=000008/_seamark.json").unlink()
    epoch_ranges.write_merged(f"{path}/upto=000008", others)
    shown = [sink.committed("t", number) for number in (5, 6, 7)]
    assert [found and found.attempt for found in shown] == ["another"] * 3
    assert read[2:] == ["upto=000008"], "what was written again is read again"


def test_a_running_pipeline_goes_on_while_ranges_are_merged(path: Path) -> None:
    sink = HandRanged(path)
    sink.stage(frame([110]), epoch(11), "a11")
    HandRanged(path).merge(until=8)
    sink.commit(sink.prepare())
    assert Counter(rows_below(path)) == EVERY + Counter([110])


# taking back


@pytest.mark.parametrize("last", [1, 2, 3, 5, 7])
def test_nothing_is_taken_back_from_the_middle_of_a_merged_range(path: Path, last: int) -> None:
    sink = HandRanged(path)
    sink.merge(until=8)
    for refuse in (sink.require_unpublish_after, sink.unpublish_after):
        with pytest.raises(RefusedError, match="were merged"):
            refuse(last)
    assert Counter(rows_below(path)) == EVERY


@pytest.mark.parametrize("last", [0, 4, 8, 9])
def test_whole_ranges_can_be_taken_back_and_written_anew(path: Path, last: int) -> None:
    sink = HandRanged(path)
    sink.merge(until=8)
    sink.require_unpublish_after(last)
    assert sink.unpublish_after(last) == [*range(last + 1, EPOCHS + 1)]
    kept = Counter(row for number in range(1, last + 1) for row in rows_of(number))
    assert Counter(rows_below(path)) == kept
    assert sink.committed("", last + 1) is None
    sink.stage(frame([777]), epoch(last + 1, NEW), "b1")
    sink.commit(sink.prepare())
    assert Counter(rows_below(path)) == kept + Counter([777])
    assert sink.unpublish_after(last) == [last + 1]


# what goes wrong


def test_a_merged_range_of_one_history_can_be_taken_back_twice(path: Path) -> None:
    for _ in range(2):
        assert HandRanged(path).merge(until=4) == [4]
        assert HandRanged(path).unpublish_after(0, OLD) == [*range(1, EPOCHS + 1)]
        assert rows_below(path) == []
        fill(path)
    assert Counter(rows_below(path)) == EVERY


def test_a_damaged_epoch_is_not_merged_and_not_lost(path: Path) -> None:
    part = next((path / "upto=000004/epoch=000002").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-2] + b" \n")
    with pytest.raises(DamageError, match="epoch 2 is not what was published"):
        HandRanged(path).merge(until=8)
    assert (path / "upto=000004/epoch=000001").is_dir()


@pytest.mark.parametrize("name", ["notes.txt", "_mine/notes.txt", "epoch=1/part-0"])
def test_what_is_no_epoch_is_not_removed_with_a_merged_range(path: Path, name: str) -> None:
    stray = path / "upto=000004" / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("mine")
    with pytest.raises(RefusedError, match="which is no epoch and would be removed"):
        HandRanged(path).merge(until=8)
    assert stray.read_text() == "mine"


def test_where_folders_cannot_be_exchanged_nothing_is_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(one: str, other: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), one)

    monkeypatch.setattr(compaction, "exchange", refused)
    with pytest.raises(RefusedError, match="cannot exchange"):
        HandRanged(path).merge(until=8)
    assert Counter(rows_below(path)) == EVERY


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_what_cannot_be_merged_is_refused_before_anything_is_read(
    tmp_path: Path, format_: Literal["csv", "json"]
) -> None:
    options = {"encoding": "UTF-16"} if format_ == "json" else {}
    sink = FileSink(tmp_path, format=format_, options=options, epochs_per_folder=10)
    with pytest.raises(RefusedError, match="cannot be merged"):
        sink.compact("memory://none")
    with pytest.raises(RefusedError, match="epochs_per_folder"):
        FileSink(tmp_path).compact("memory://none")
    with pytest.raises(InvalidInputError):
        FileSink("hdfs://name/x", epochs_per_folder=10)


def test_a_folder_keeps_the_grouping_that_it_began_with(path: Path) -> None:
    with pytest.raises(RefusedError, match="epochs_per_folder"):
        claim_folder(str(path), PIPELINE, SINK, "json", (), None)


# the store decides how far


def checkpoint(store: CheckpointStore, number: int, target: str) -> None:
    committed = SinkCommitStatus.committed()
    point = ReadPoint("files", target, {"epoch": number, "format": "json", "epochs_per_folder": 4})
    store.save(
        CheckpointManifest.new(
            number,
            number,
            sink_names=["bars"],
            sink_commit_statuses={"bars": committed},
            structure={"sinks": {"bars": {"kind": "files", "target": target}}},
            read_points={"bars": {"kind": "files", "target": target, "at": point.at}},
        )
    )


class Merged(HandRanged):
    def _merge(self, spark: Any, folder: str, epochs: list[str], target: str, size: int) -> None:
        self._merge_by_hand(folder, epochs, target, size)


def test_ranges_are_merged_up_to_the_oldest_checkpoint_that_is_kept(path: Path) -> None:
    with open_store(path.parent / "store") as store:
        store.claim()
        sink = Merged(path)
        assert sink.compact(store) == [], "a store without checkpoints says nothing"
        for number in range(1, EPOCHS + 1):
            checkpoint(store, number, str(path))
        assert sink.compact(store) == [], "epoch 1 can still be rolled back to"
        store.pin("before", 5)
        store.prune(2)
        assert sink.compact(store) == [4]
        store.unpin("before")
        store.prune(2)
        assert sink.compact(store.url) == [8]
    assert Counter(rows_below(path)) == EVERY


def test_the_store_of_another_pipeline_is_refused(path: Path) -> None:
    with open_store(path.parent / "store") as store:
        store.claim()
        checkpoint(store, 1, "/somewhere/else")
        with pytest.raises(RefusedError, match="does not write to this folder"):
            Merged(path).compact(store)


def test_a_cut_inside_of_a_merged_range_says_what_can_be_read(path: Path) -> None:
    with open_store(path.parent / "store") as store:
        store.claim()
        for number in range(1, EPOCHS + 1):
            checkpoint(store, number, str(path))
        HandRanged(path).merge(until=8)
        for number in (1, 3, 5, 7):
            sink = seamark.read_epoch(store, number)["bars"]
            assert (sink.readable, sink.calls) == (False, {})
            assert f"up to {4 if number < 4 else 8} were merged" in sink.note
        for number in (4, 8, 9, 10):
            sink = seamark.read_epoch(store, number)["bars"]
            assert sink.readable
            rows = duckdb.sql(f"SELECT n FROM ({sink.calls['duckdb']})").fetchall()
            expected = Counter(row for e in range(1, number + 1) for row in rows_of(e))
            assert Counter(row[0] for row in rows) == expected


# who reads meanwhile


def a_reader(path: Path, order: Callable[[list[Path]], list[Path]]) -> Iterator[Counter[int]]:
    """Lists folder by folder and skips what is gone, as the most careless do; then reads.

    Stops between any two steps; the last value is what it has seen. FileNotFoundError for a file
    that it has listed and cannot open.
    """
    nothing: Counter[int] = Counter()
    files: list[Path] = []
    yield nothing
    for group in order([each for each in path.iterdir() if each.name.startswith("upto=")]):
        yield nothing
        try:
            epochs = [each for each in group.iterdir() if each.name.startswith("epoch=")]
        except FileNotFoundError:
            continue
        for one in order(epochs):
            yield nothing
            with suppress(FileNotFoundError):
                files += [each for each in one.iterdir() if each.name.startswith("part-")]
    rows: Counter[int] = Counter()
    for file in files:
        yield nothing
        rows.update(int(line[5:-1]) for line in file.read_text().splitlines())
    yield rows


@pytest.mark.parametrize("seed", slow_except(["in order", *range(5)], "in order", "0"))
def test_I2_a_reader_sees_each_row_once_or_an_error_whenever_ranges_are_exchanged(
    tmp_path: Path, seed: int | str
) -> None:
    def order(paths: list[Path]) -> list[Path]:
        ordered = sorted(paths)
        if isinstance(seed, int):
            random.Random(seed).shuffle(ordered)
        return ordered

    fill(tmp_path / "whole", 6)
    every = Counter(row for number in range(1, 7) for row in rows_of(number))
    steps = sum(1 for _ in a_reader(tmp_path / "whole", order))
    outcomes: Counter[str] = Counter()
    for at in range(steps):
        path = tmp_path / f"at-{at}"
        shutil.copytree(tmp_path / "whole", path)
        seen: Counter[int] = Counter()
        try:
            for number, rows in enumerate(a_reader(path, order)):
                seen = rows
                if number == at:
                    HandRanged(path).merge(until=8)
        except FileNotFoundError:
            outcomes["error"] += 1
            continue
        outcomes["whole"] += 1
        assert seen == every, f"exchanged at step {at} of {steps}"
    assert outcomes["whole"] > 2
    assert outcomes["error"] > 2, "and then it reads again"


# who dies meanwhile


@pytest.mark.slow
@pytest.mark.parametrize("when", slow_except(["after", "torn"], "after"))
def test_I2_each_row_is_there_once_after_a_death_at_any_io_of_a_compaction(
    when: Literal["after", "torn"], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = SimulatedDisk()
    mount_sinks(monkeypatch, filled, filled.fcntl)
    fill(PATH, 5)

    def run(crash_at: int | None) -> tuple[Recording, SimulatedDisk]:
        disk = filled.after_kill()
        recording = Recording(crash_at=crash_at, when=when)
        mount_sinks(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        with suppress(Crash):
            HandRanged(PATH).merge(until=4)
        return recording, disk

    every = Counter(row for number in range(1, 6) for row in rows_of(number))
    calls = run(None)[0].calls
    assert any(call.name == "exchange" for call in calls)
    for crash_at in range(1, len(calls) + 1):
        if calls[crash_at - 1].only_reads or (when == "torn" and not calls[crash_at - 1].writes):
            continue
        _, disk = run(crash_at)
        for what, after in images(disk, crash_at):
            where = f"died {when} {calls[crash_at - 1]} ({crash_at}), {what}\n{after.tree()}"
            assert rows_on(after, PATH) == every, where
            mount_sinks(monkeypatch, after, after.fcntl)
            sink = HandRanged(PATH)
            for number in range(1, 6):
                assert sink.committed("", number) is not None, where
            sink.merge(until=4)
            assert rows_on(after, PATH) == every, where
            assert rows_on(after.after_power_cut(), PATH) == every, where
            assert after.listdir(f"{PATH}/upto=000004") in (
                ["_seamark.json", "epoch=000002"],
                ["epoch=000002", "_seamark.json"],
            ), where
            assert after.listdir(f"{PATH}/_seamark/compacting") == []


def test_no_epoch_is_read_merged_or_taken_back_behind_a_link(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "of somebody else"
    folders = sorted(path.glob("upto=*"))
    folders[0].rename(outside)
    folders[0].symlink_to(outside)
    before = sorted(outside.rglob("*"))
    sink = HandRanged(path)
    sink.open(PIPELINE, SINK, None)
    for act in (
        lambda: sink.unpublish_after(0),
        lambda: sink.merge(until=8),
        lambda: read_receipts(path),
    ):
        with pytest.raises(StoreUnavailableError, match="is a link"):
            act()
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize(
    ("target", "number"), [("nul\0", 1), ("a" * 5000, 1), ("/dev/null", 1), ("/", 10**4299 * 9 + 1)]
)
def test_a_place_or_epoch_that_cannot_be_was_merged_with_nothing(target: str, number: int) -> None:
    assert MergedSpans().beyond(target, number, 10**4299 if number > 1 else 10) is None
