"""A folder that many sinks write to is listed and read once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark.audit import files
from seamark.audit.epoch_listing import EpochListing, SharedFolders
from seamark.audit.expectations import SinkHistory
from seamark.audit.files import read_files
from seamark.audit.verdicts import Result, Shown, verdict_of
from seamark.errors import DamageError
from seamark.sinks import epoch_ranges
from seamark.spark.row_digests import RowDigest
from seamark.testing.conformance.sink_examples import receipt
from tests.audit.test_expectations import checkpoint, history, own

SPARK: Any = None


class Counted:
    """Listings of folders, records of merged epochs and folders that Spark is to read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listed = self.records = 0
        self.read: list[str] = []
        self._listed, self._merged = files._listed, epoch_ranges.read_merged
        monkeypatch.setattr(files, "_listed", self._list)
        monkeypatch.setattr(files, "read_merged", self._record)
        monkeypatch.setattr(files._FolderReader, "_rows", lambda _, folders: folders)
        monkeypatch.setattr(files, "digests_by", self._digests)

    def _list(self, target: str) -> EpochListing:
        self.listed += 1
        return self._listed(target)

    def _record(self, folder: str) -> epoch_ranges.MergedEpochs | None:
        self.records += 1
        return self._merged(folder)

    def _digests(self, folders: Sequence[str], _: str) -> Iterator[tuple[int, RowDigest]]:
        self.read += [Path(folder).name for folder in folders]
        if any((Path(folder) / "broken").exists() for folder in folders):
            raise DamageError("it is broken")
        for folder in folders:
            epoch = int(folder.rpartition("=")[2])
            yield epoch, own(int((Path(folder) / "rows").read_text()))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def epochs_in(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / f"epoch={number:06}").mkdir(parents=True)
        (folder / f"epoch={number:06}" / "rows").write_text(str(number))


def sinks(root: Path, count: int) -> list[SinkHistory]:
    """Sinks of one folder, which each of them spells in another way."""
    known = history(checkpoint(2), checkpoint(1))
    (root / "link").symlink_to("t")
    spelled = ("t", "./t", "t/.", "link", "t/../t")
    return [
        replace(known, sink=f"s{n}", target=f"{root}/{spelled[n % len(spelled)]}")
        for n in range(count)
    ]


def results(found: SinkHistory, shown: list[Shown]) -> list[Result]:
    return [verdict_of(each, found).result for each in shown]


def test_sinks_of_one_folder_have_it_listed_and_its_records_read_once(
    tmp_path: Path, counted: Counted
) -> None:
    merged = tmp_path / "t/upto=999999"
    merged.mkdir(parents=True)
    epoch_ranges.write_merged(str(merged), [receipt(number, "a") for number in range(50, 60)])
    folders = SharedFolders()
    for sink in sinks(tmp_path, 30):
        shown = list(read_files(SPARK, sink, is_named=True, folders=folders))
        assert results(sink, shown) == [Result.LOST, Result.LOST]
    assert counted.listed == 2, "what looks damaged is listed again, once"
    assert counted.records == 2


def test_sinks_of_one_folder_have_its_rows_read_once(tmp_path: Path, counted: Counted) -> None:
    epochs_in(tmp_path / "t", 1, 2)
    folders = SharedFolders()
    for sink in sinks(tmp_path, 30):
        shown = list(read_files(SPARK, sink, is_named=True, folders=folders))
        assert results(sink, shown) == [Result.OK, Result.OK]
    assert counted.read == ["epoch=000001", "epoch=000002"]
    assert counted.listed == 1


def test_folders_that_cannot_be_read_are_not_tried_for_each_sink(
    tmp_path: Path, counted: Counted
) -> None:
    epochs_in(tmp_path / "t", 1, 2)
    (tmp_path / "t/epoch=000002/broken").touch()
    folders = SharedFolders()
    for sink in sinks(tmp_path, 30):
        shown = list(read_files(SPARK, sink, is_named=True, folders=folders))
        assert results(sink, shown) == [Result.OK, Result.UNREADABLE]
    assert len(counted.read) == 4, "both at once, then each"
    assert counted.listed == 2


def test_what_was_replaced_since_another_sink_was_read_is_read_again(
    tmp_path: Path, counted: Counted
) -> None:
    epochs_in(tmp_path / "t", 1, 2)
    (tmp_path / "t/epoch=000002/broken").touch()
    folders = SharedFolders()
    first, second, third = sinks(tmp_path, 3)
    assert Result.UNREADABLE in results(
        first, list(read_files(SPARK, first, is_named=True, folders=folders))
    )
    # another schema has another reader, and so looks at the folder once more
    second = replace(second, columns=(("n", "bigint"),))
    (tmp_path / "t/epoch=000002").rename(tmp_path / "t/_gone")
    epochs_in(tmp_path / "t", 2)
    for sink in (second, third):
        shown = list(read_files(SPARK, sink, is_named=True, folders=folders))
        assert results(sink, shown) == [Result.OK, Result.OK]


def test_rows_that_are_read_in_another_way_are_read_again(tmp_path: Path, counted: Counted) -> None:
    epochs_in(tmp_path / "t", 1, 2)
    folders = SharedFolders()
    first, second = sinks(tmp_path, 2)
    second = replace(second, columns=(("n", "bigint"),))
    for sink in (first, second):
        list(read_files(SPARK, sink, is_named=True, folders=folders))
    assert len(counted.read) == 4
