"""A driver that asks a FileSink while another one publishes or takes back gets a true answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.errors import DamageError, LineageError, StoreUnavailableError
from seamark.sinks import publish, read_receipts
from seamark.sinks.contract import Receipt, identity_in
from seamark.sinks.files import committable_of
from seamark.sinks.hdfs_files import HdfsFileSink
from seamark.sinks.hdfs_folder import HdfsFolder
from seamark.sinks.publish import Prepared
from seamark.sinks.target_checks import Target
from seamark.testing.conformance.sink_examples import NEW, OLD, receipt
from tests.sinks.support.hand_written import (
    HandRanged,
    HandWritten,
    prepared,
    rows_below,
    shown_epoch,
)
from tests.sinks.test_compaction import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _after_calls(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    *names: str,
    do: Callable[[], object],
    calls: int = 1,
) -> None:
    """Let another driver do something right after the first calls of one of these functions."""
    waiting = [*[lambda: None] * (calls - 1), do]

    def beside(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            found = real(*arguments)
            if waiting:
                waiting.pop(0)()
            return found

        return called

    for name in names:
        monkeypatch.setattr(owner, name, beside(getattr(owner, name)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    HandWritten(tmp_path / "rows").open("trades", "bars", None)
    return tmp_path / "rows"


# a folder of this machine


def test_an_epoch_that_is_published_while_it_is_asked_for_is_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, committable = prepared(path)
    _after_calls(monkeypatch, publish, "read_record", do=lambda: other.commit(committable))
    assert HandWritten(path).committed(OLD, 1) == receipt(1, "a1")


def test_an_epoch_that_is_taken_back_while_it_is_looked_at_is_no_stranger(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = shown_epoch(path)
    other = HandWritten(path)
    looks = ("is_there", "read_record")
    _after_calls(monkeypatch, publish, *looks, do=lambda: other.unpublish_after(0))
    HandWritten(path).commit(committable)  # it was shown when it was looked at
    assert rows_below(path) == []
    with pytest.raises(DamageError, match="neither published nor staged any more"):
        HandWritten(path).commit(committable)


def test_the_newest_epoch_is_the_one_below_when_another_driver_takes_it_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        shown_epoch(path, number)
    other = HandWritten(path)
    _after_calls(monkeypatch, publish, "all_epochs", do=lambda: other.unpublish_after(1))
    assert HandWritten(path).newest() == receipt(1, "a1")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_epoch_that_is_merged_while_it_is_asked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fill(tmp_path / "rows")
    sink = HandRanged(tmp_path / "rows")
    before = sink.committed(OLD, number)
    assert before is not None
    _after_calls(monkeypatch, publish, "read_record", do=lambda: sink.merge(4))
    assert sink.committed(OLD, number) == before


def test_the_receipts_of_a_folder_are_those_of_one_history(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3, 4):
        shown_epoch(path, number)

    def roll_back_and_go_on() -> None:
        HandWritten(path).unpublish_after(2)
        for number in (3, 4):
            shown_epoch(path, number, NEW)

    _after_calls(monkeypatch, publish, "receipt_in", calls=3, do=roll_back_and_go_on)
    assert [(one.epoch, one.timeline) for one in read_receipts(path)] == [
        (1, OLD),
        (2, OLD),
        (3, NEW),
        (4, NEW),
    ]


def test_receipts_of_epochs_that_are_merged_meanwhile_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "rows")
    sink = HandRanged(tmp_path / "rows")
    before = [(one.epoch, one.attempt) for one in read_receipts(tmp_path / "rows")]
    _after_calls(monkeypatch, publish, "receipt_in", calls=2, do=lambda: sink.merge(4))
    assert [(one.epoch, one.attempt) for one in read_receipts(tmp_path / "rows")] == before


def test_receipts_are_read_once_while_a_pipeline_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_epoch(path, 1)
    numbers = count(2)
    real = publish.receipt_in

    def beside(target: str) -> Receipt | None:
        found = real(target)
        shown_epoch(path, next(numbers))
        return found

    monkeypatch.setattr(publish, "receipt_in", beside)
    assert [one.epoch for one in read_receipts(path)] == [1]


def test_a_folder_whose_epochs_change_at_every_look_is_neither_told_nor_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_epoch(path, 1)
    attempts = count()
    real = publish.receipt_in

    def beside(target: str) -> Receipt | None:
        found = real(target)
        HandWritten(path).unpublish_after(0)
        shown_epoch(path, 1, NEW, f"b{next(attempts)}")
        return found

    monkeypatch.setattr(publish, "receipt_in", beside)
    with pytest.raises(StoreUnavailableError, match="merged or taken back while"):
        read_receipts(path)


def test_a_folder_without_a_record_stays_one_however_often_it_is_looked_at(path: Path) -> None:
    _, committable = prepared(path)
    (path / "epoch=000001").mkdir()
    with pytest.raises(DamageError, match="has no record"):
        HandWritten(path).committed(OLD, 1)
    with pytest.raises(LineageError, match="no FileSink has published it"):
        HandWritten(path).commit(committable)


# a folder that only Spark reaches


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[HdfsFolder]:
    """The same code as on HDFS, on Hadoop's file system of this machine."""
    opened = HdfsFolder(f"file:{tmp_path}/rows")
    opened._opened = HadoopDirectory(opened.url, spark)
    yield opened
    opened.close()


def _prepared_by_hadoop(folder: HdfsFolder, number: int = 1, timeline: str = OLD) -> Prepared:
    """An epoch without rows: only HDFS has checksums of files."""
    told = receipt(number, f"a{number}", timeline)
    folder.stage(told.attempt, number, lambda _: None)
    sealed = folder.seal(told, empty_files=False)
    return identity_in(committable_of(told, [], sealed.digest), Prepared)


@pytest.mark.warm
def test_an_epoch_on_hdfs_that_is_published_while_it_is_asked_for_is_no_damage(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _prepared_by_hadoop(folder)
    _after_calls(monkeypatch, folder, "_record", do=lambda: folder.publish(told))
    assert folder.receipt(1) == receipt(1, "a1")


@pytest.mark.warm
def test_an_epoch_on_hdfs_that_another_driver_publishes_first_is_no_stranger(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _prepared_by_hadoop(folder)
    _after_calls(monkeypatch, folder, "_record", do=lambda: folder.publish(told))
    folder.publish(told)
    assert folder.epochs() == [1]


@pytest.mark.warm
def test_the_newest_epoch_on_hdfs_is_the_one_below_when_another_driver_takes_it_back(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        folder.publish(_prepared_by_hadoop(folder, number))
    _after_calls(monkeypatch, folder, "epochs", do=lambda: folder.unpublish_after(1))
    sink = HdfsFileSink("hdfs://server/rows")
    sink._folder = folder
    assert sink.newest() == receipt(1, "a1")


@pytest.mark.warm
@pytest.mark.parametrize("calls", [1, 2, 3, 4, 5])
def test_a_new_history_on_hdfs_stays_when_a_driver_wakes_late_in_a_rollback(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    for number in (1, 2, 3):
        folder.publish(_prepared_by_hadoop(folder, number))

    def go_on() -> None:
        folder.unpublish_after(1)
        for number in (2, 3):
            folder.publish(_prepared_by_hadoop(folder, number, NEW))

    _after_calls(monkeypatch, folder, "_seen", do=go_on, calls=calls)
    with pytest.raises(LineageError, match="has come to the place of one that was to be taken"):
        folder.unpublish_after(1, OLD)
    there = [folder.receipt(number) for number in (1, 2, 3)]
    assert [found.timeline for found in there if found is not None] == [OLD, NEW, NEW]


@pytest.mark.warm
def test_a_folder_on_hdfs_without_a_record_is_told(folder: HdfsFolder) -> None:
    told = _prepared_by_hadoop(folder)
    folder._files.make_folder("epoch=000001")
    with pytest.raises(DamageError, match="has no record"):
        folder.receipt(1)
    with pytest.raises(LineageError, match="no FileSink has published it"):
        folder.publish(told)


@pytest.mark.warm
def test_two_drivers_that_claim_a_folder_on_hdfs_at_once_leave_a_whole_note_of_whose_it_is(
    folder: HdfsFolder, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = Target("trades", "bars", "parquet", ()), HadoopDirectory(folder.url, spark)
    write = folder._files.write_stream

    def write_beside_another(path: str, pieces: Iterable[bytes]) -> None:
        write(path, pieces)
        monkeypatch.undo()
        late = HdfsFolder(folder.url)
        late._opened = other
        with pytest.MonkeyPatch.context() as torn:
            begun = other.write_stream
            torn.setattr(other, "rename_if_free", lambda *_: False)
            torn.setattr(other, "write_stream", lambda path, _: begun(path, (b"{",)))
            with suppress(StoreUnavailableError):
                late.claim(ours)

    monkeypatch.setattr(folder._files, "write_stream", write_beside_another)
    folder.claim(ours)
    folder.check(ours)
    assert [name for name in other.names("_seamark") if name.startswith(".target")] == []
    other.close()
