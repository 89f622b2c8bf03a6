"""A driver that asks a FileSink while another one publishes or takes back gets a true answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.errors import DamageError, LineageError
from seamark.sinks import publish
from seamark.sinks.contract import identity_in
from seamark.sinks.files import committable_of
from seamark.sinks.hdfs_files import HdfsFileSink
from seamark.sinks.hdfs_folder import HdfsFolder
from seamark.sinks.publish import Prepared
from seamark.testing.conformance.sink_examples import OLD, receipt
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


def _after_first_call(
    monkeypatch: pytest.MonkeyPatch, owner: object, *names: str, do: Callable[[], object]
) -> None:
    """Let another driver do something right after the first call of one of these functions."""
    waiting = [do]

    def beside(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            found = real(*arguments)
            if waiting:
                waiting.pop()()
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
    _after_first_call(monkeypatch, publish, "read_record", do=lambda: other.commit(committable))
    assert HandWritten(path).committed(OLD, 1) == receipt(1, "a1")


def test_an_epoch_that_is_taken_back_while_it_is_looked_at_is_no_stranger(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = shown_epoch(path)
    other = HandWritten(path)
    looks = ("is_there", "read_record")
    _after_first_call(monkeypatch, publish, *looks, do=lambda: other.unpublish_after(0))
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
    _after_first_call(monkeypatch, publish, "all_epochs", do=lambda: other.unpublish_after(1))
    assert HandWritten(path).newest() == receipt(1, "a1")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_epoch_that_is_merged_while_it_is_asked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fill(tmp_path / "rows")
    sink = HandRanged(tmp_path / "rows")
    before = sink.committed(OLD, number)
    assert before is not None
    _after_first_call(monkeypatch, publish, "read_record", do=lambda: sink.merge(4))
    assert sink.committed(OLD, number) == before


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


def _prepared_by_hadoop(folder: HdfsFolder, number: int = 1) -> Prepared:
    """An epoch without rows: only HDFS has checksums of files."""
    told = receipt(number, f"a{number}")
    folder.stage(told.attempt, number, lambda _: None)
    sealed = folder.seal(told, empty_files=False)
    return identity_in(committable_of(told, [], sealed.digest), Prepared)


@pytest.mark.warm
def test_an_epoch_on_hdfs_that_is_published_while_it_is_asked_for_is_no_damage(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _prepared_by_hadoop(folder)
    _after_first_call(monkeypatch, folder, "_record", do=lambda: folder.publish(told))
    assert folder.receipt(1) == receipt(1, "a1")


@pytest.mark.warm
def test_an_epoch_on_hdfs_that_another_driver_publishes_first_is_no_stranger(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _prepared_by_hadoop(folder)
    _after_first_call(monkeypatch, folder, "_record", do=lambda: folder.publish(told))
    folder.publish(told)
    assert folder.epochs() == [1]


@pytest.mark.warm
def test_the_newest_epoch_on_hdfs_is_the_one_below_when_another_driver_takes_it_back(
    folder: HdfsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        folder.publish(_prepared_by_hadoop(folder, number))
    _after_first_call(monkeypatch, folder, "epochs", do=lambda: folder.unpublish_after(1))
    sink = HdfsFileSink("hdfs://server/rows")
    sink._folder = folder
    assert sink.newest() == receipt(1, "a1")


@pytest.mark.warm
def test_a_folder_on_hdfs_without_a_record_is_told(folder: HdfsFolder) -> None:
    told = _prepared_by_hadoop(folder)
    folder._files.make_folder("epoch=000001")
    with pytest.raises(DamageError, match="has no record"):
        folder.receipt(1)
    with pytest.raises(LineageError, match="no FileSink has published it"):
        folder.publish(told)
