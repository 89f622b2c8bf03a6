"""A folder whose epochs are merged, or whose pipeline is rolled back, while it is audited is not
called damaged; one that is damaged is, whatever happens meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.audit import files
from seamark.audit.epoch_listing import EpochListing
from seamark.errors import StoreUnavailableError
from seamark.sinks import FileSink
from seamark.sinks.compaction import compact
from tests.audit.support.pipelines import (
    audited,
    damage_found,
    pipeline,
    rewrite,
    write_input,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EPOCHS = 4
PER = 2


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four epochs in ranges of two; all checkpoints are kept."""
    root = tmp_path_factory.mktemp("four")
    write_input(root / "input", EPOCHS)
    pipeline(spark, root, _sink(root), keep=20).run(available_now=True)
    return root


@pytest.fixture
def world(original: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    for name in ("input", "store", "out"):
        shutil.copytree(original / name, tmp_path / name)
    return tmp_path


def _sink(root: Path) -> FileSink:
    return FileSink(root / "out", epochs_per_folder=PER)


def _merge(world: Path, spark: SparkSession) -> None:
    """As ``compact()`` does it, without asking the store how far that may go."""
    sink = _sink(world)
    compact(sink.path, EPOCHS - 1, partial(sink._merge, spark), empty_files=False)


def _beside(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object], *, before: bool = False
) -> list[str]:
    """Do something once, right before or after a function of the reader of files is called."""
    real: Callable[..., Any] = getattr(files, name)
    done: list[str] = []

    def called(*arguments: Any) -> Any:
        found = None if before else real(*arguments)
        if not done:
            done.append(name)
            act()
        return real(*arguments) if before else found

    monkeypatch.setattr(files, name, called)
    return done


def _damage(spark: SparkSession, world: Path) -> list[tuple[str, str, str]]:
    return damage_found(audited(spark, world / "store", trades=str(world / "out")))


def _lose_a_row(world: Path, epoch: int) -> None:
    path = next((world / "out").glob(f"upto=*/epoch={epoch:06}/part-*"))
    rewrite(path, lambda rows: rows.__delitem__(0))


@pytest.mark.parametrize(("name", "before"), [("_listed", False), ("_merged", True)])
def test_epochs_that_are_merged_while_they_are_read_are_as_written(
    spark: SparkSession,
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    before: bool,
) -> None:
    done = _beside(monkeypatch, name, lambda: _merge(world, spark), before=before)
    assert _damage(spark, world) == []
    assert done
    assert (world / "out/upto=000002/_seamark.json").exists()


def test_epochs_that_are_taken_back_by_a_rollback_meanwhile_are_not_missed(
    spark: SparkSession, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def roll_back() -> None:
        pipeline(spark, world, _sink(world)).rollback(2)
        assert _sink(world).unpublish_after(2) == [3, 4]  # which the next start does

    _beside(monkeypatch, "_listed", roll_back, before=True)
    found = audited(spark, world / "store", trades=str(world / "out"))
    assert damage_found(found) == []
    assert found.epoch == 2


def test_rows_that_are_lost_are_told_while_other_epochs_are_merged(
    spark: SparkSession, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lose_a_row(world, 4)
    _beside(monkeypatch, "_listed", lambda: _merge(world, spark))
    assert _damage(spark, world) == [("trades", "4", "lost")]


def test_rows_that_are_lost_are_told_while_the_pipeline_goes_on(
    spark: SparkSession, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, listed = files._listed, []

    def one_more_epoch(target: str) -> EpochListing:
        listed.append(target)
        number = EPOCHS + len(listed)
        end = number + number % PER
        newest = world / f"out/upto={EPOCHS:06}/epoch={EPOCHS:06}"
        shutil.copytree(newest, world / f"out/upto={end:06}/epoch={number:06}")
        return real(target)

    _lose_a_row(world, 3)
    monkeypatch.setattr(files, "_listed", one_more_epoch)
    assert _damage(spark, world) == [("trades", "3", "lost")]
    assert len(listed) == 2, "what comes after is no reason to read it again"


def test_a_folder_that_changes_at_every_look_is_neither_whole_nor_damaged(
    spark: SparkSession, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, folder = files._listed, world / "out/upto=000002/epoch=000001"

    def touched(target: str) -> EpochListing:
        (folder / "_touched").touch()
        (folder / "_touched").unlink()
        return real(target)

    _lose_a_row(world, 1)
    monkeypatch.setattr(files, "_listed", touched)
    with pytest.raises(StoreUnavailableError, match="merged or taken back while") as caught:
        _damage(spark, world)
    assert "says nothing about what the folder holds" in str(caught.value)
