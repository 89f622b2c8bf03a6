"""An inspection goes through the files of a directory a few times, however many there are."""

from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Collection, Iterable, Iterator, Mapping, ValuesView
from dataclasses import replace
from pathlib import Path

import pytest

from seamark.checkpoint_dir import state_files
from seamark.checkpoint_dir.file_logs.compactions import LogNames, entry_name
from seamark.checkpoint_dir.formats import hdfs_state
from seamark.checkpoint_dir.formats.hdfs_state import StateChange, read_changes
from seamark.checkpoint_dir.operators import StatefulOperator
from seamark.checkpoint_dir.places.directory import FileEntry
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.schema_paths import is_same_place
from seamark.checkpoint_dir.state_files import StateFile
from seamark.checkpoint_dir.zip_stream import file_in_zip
from seamark.limits import LONGEST_PATH
from seamark.native.inspect import inspection, sources
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.contents import ReadState
from seamark.native.inspect.findings import Code, Finding
from seamark.native.inspect.logs import read_logs
from seamark.native.inspect.operators import operators_of
from seamark.native.inspect.replaced_files import copy_findings, strange_times
from seamark.native.inspect.state import State, Store, _by_operator, _holes, _is_reached
from seamark.spark.batch_log import parse_offsets
from tests.checkpoint_dir.support.directories import source_entry
from tests.native.support.inspected import (
    delta,
    looked_at,
    make_hdfs,
    make_logs,
    make_rocksdb,
    offsets,
    rows_of,
    write,
)
from tests.support.counted_lines import lines_run


class CountedFiles(UserDict[int, list[StateFile]]):
    """Counts how often somebody goes through all of them."""

    walks = 0

    def values(self) -> ValuesView[list[StateFile]]:
        self.walks += 1
        return super().values()


class CountedStores(list[Store]):
    """The same for stores."""

    walks = 0

    def __iter__(self) -> Iterator[Store]:
        self.walks += 1
        return super().__iter__()


def store_of(operator: int, files: Mapping[int, list[StateFile]]) -> Store:
    described = StatefulOperator(operator, "stateStoreSave", ["default"], 1)
    return Store(described, next(described.folders()), files, {}, None)


def test_the_files_of_a_store_are_not_gone_through_for_each_of_its_versions(
    tmp_path: Path,
) -> None:
    versions = range(1, 200)
    files = CountedFiles({version: [StateFile(version, None, "delta")] for version in versions})
    store = store_of(0, files)
    paths = [*map(store.path, store.all_files), *(f"offsets/{v - 1}" for v in versions)]
    listing = CachedListing(LocalDirectory(tmp_path), dict.fromkeys(paths, FileEntry(1, 0.0, "")))
    assert strange_times(listing, [store]) == {}
    assert files.walks == 1


class CountedLines(tuple[str, ...]):
    """The lines of an offset log; counts how often somebody goes through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        CountedLines.walks += 1
        return super().__iter__()


def test_the_lines_of_the_offsets_are_not_gone_through_for_each_source_with_an_empty_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedLines, "walks", 0)
    make_logs(tmp_path, 1)
    for number in range(100):
        write(tmp_path, f"sources/{number}/0", "")
    listing = CachedListing(directory := LocalDirectory(tmp_path), directory.listing())
    entry = replace(parse_offsets(offsets(0)), lines=CountedLines(['{"logOffset":0}'] * 100))
    logs = replace(read_logs(listing), entries={0: entry})
    found = [*sources.source_findings(listing, logs)]
    assert [each.code for each in found].count(Code.SOURCE_LOG_DAMAGED) == 100
    assert CountedLines.walks < 20


class WalkedStore(Store):
    """Counts how often somebody goes through all of its files."""

    walks = 0

    @property
    def all_files(self) -> list[StateFile]:
        WalkedStore.walks += 1
        return super().all_files


@pytest.mark.parametrize("kind", ["zip", "delta"])
def test_the_files_of_a_store_are_not_gone_through_for_each_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(WalkedStore, "walks", 0)
    plain = store_of(0, {v: [StateFile(v, None, kind)] for v in range(1, 200)})
    store = WalkedStore(plain.operator, plain.folder, plain.files, {}, None)
    # each of the second half equals one of the first, and others lie between
    digests = {store.path(file): b"%d" % (file.version % 100) for file in plain.all_files}
    paths = dict.fromkeys(digests, FileEntry(1, 0.0, ""))
    listing = CachedListing(LocalDirectory(tmp_path), paths)
    state = State([store], {}, [], is_understood=True)
    found = [*copy_findings(listing, state, ReadState(digests), {})]
    assert len(found) == (99 if kind == "zip" else 0)
    assert WalkedStore.walks <= 2


def test_equal_files_of_one_version_are_not_counted_through_for_each_of_them(
    tmp_path: Path,
) -> None:
    def work(many: int) -> int:
        others = {v: [StateFile(v, None, "delta")] for v in (1, 3)}
        alike = [StateFile(2, f"{number:08x}", "delta") for number in range(many)]
        store = store_of(0, others | {2: alike})
        digests = {store.path(file): b"same" for file in alike}
        there = [*digests, *(f"{store.folder.path}/.{v}.delta.crc" for v in (1, 3))]
        listing = CachedListing(
            LocalDirectory(tmp_path), dict.fromkeys(there, FileEntry(1, 0.0, ""))
        )
        state = State([store], {}, [], is_understood=True)
        found: list[Finding] = []
        lines = lines_run(
            lambda: found.extend(copy_findings(listing, state, ReadState(digests), {}))
        )
        assert [each.code for each in found] == [Code.STATE_REPEATED] * many
        return lines

    assert work(400) < 3 * work(200)


def test_all_stores_are_not_gone_through_for_each_operator(tmp_path: Path) -> None:
    count = 50
    for number in range(count):
        (tmp_path / f"state/{number}/0").mkdir(parents=True)
        (tmp_path / f"state/{number}/0/1.delta").write_bytes(b"x")
    directory = LocalDirectory(tmp_path)
    listing = CachedListing(directory, directory.listing())
    files = {1: [StateFile(1, None, "delta")]}
    stores = CountedStores([store_of(number, files) for number in range(count)])
    found = operators_of(listing, State(stores, {}, [], is_understood=True), 1, {})
    assert [each.partitions for each in found] == [1] * count
    assert stores.walks == 1
    assert [which for _, which, _ in _by_operator(stores, stores)] == [[0]] * count
    assert stores.walks == 3


def test_what_a_snapshot_of_rocksdb_says_is_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_rocksdb(tmp_path)
    state_files._remembered_metadata.cache_clear()
    unpacked: list[str] = []

    def counted(data: bytes, wanted: str, most: int) -> bytes:
        unpacked.append(wanted)
        return file_in_zip(data, wanted, most)

    monkeypatch.setattr(state_files, "file_in_zip", counted)
    assert looked_at(root, read_data=True).operators
    assert unpacked == ["metadata"]


def test_changes_are_read_once_for_all_snapshots_of_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, more = 30, 20
    root = make_hdfs(tmp_path / "ck", batches, snapshot=batches)
    state: dict[str, str | None] = {}
    for version in range(1, batches + 1):
        state |= rows_of(0, version)
    for number in range(more):
        wrong = state | {f"other-{number}": "1"}
        write(root, f"state/0/0/{batches}_{number:08x}.snapshot", delta(wrong if number else state))
    reads = 0

    def counted(data: bytes, most: int | None = None) -> list[StateChange]:
        nonlocal reads
        reads += 1
        return read_changes(data, most)

    monkeypatch.setattr(hdfs_state, "read_changes", counted)
    found = [each for each in looked_at(root).findings if each.code == Code.SNAPSHOT_DISAGREES]
    assert len(found) == more - 1
    assert reads <= 2 * (2 * batches + more + 2)  # it is looked at twice


def test_versions_are_not_counted_through_for_each_file_without_a_byte() -> None:
    many = 300
    looks = 0

    class Looked(UserDict[int, list[StateFile]]):
        def __getitem__(self, version: int) -> list[StateFile]:
            nonlocal looks
            looks += 1
            return super().__getitem__(version)

    snapshot = StateFile(many // 2, None, "snapshot")
    operator = StatefulOperator(0, "stateStoreSave", ["default"], 1)
    empty = {version: [StateFile(version, None, "delta")] for version in range(1, many)}
    store = Store(operator, next(operator.folders()), Looked({many // 2: [snapshot]}), empty, None)
    reached = [number for number in empty if _is_reached(store, number, many)]
    assert reached == list(range(many // 2 + 1, many))
    assert looks < 10


def test_versions_between_two_files_are_not_counted_one_by_one() -> None:
    class Asked(set[int]):
        asked = 0

        def __contains__(self, number: object) -> bool:
            self.asked += 1
            return super().__contains__(number)

    versions = [*range(1, 100_000, 900), 100_000]
    files = {version: [StateFile(version, None, "delta")] for version in versions}
    files[100_000] = [StateFile(100_000, None, "snapshot")]
    committed = Asked({7, 1234, 99_999})
    holes = [*_holes([store_of(0, files)], committed, 100_000)]
    assert [hole.path.rpartition("/")[2] for hole in holes] == ["8.delta", "1235.delta"]
    assert committed.asked == 0


def test_the_log_of_a_source_is_not_gone_through_for_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = 60
    root = make_hdfs(tmp_path / "ck", batches, snapshot=None)
    listed = 0

    class Counted(CachedListing):
        def names(self, folder: str) -> Collection[str]:
            nonlocal listed
            listed += folder.startswith("sources/")
            return super().names(folder)

    monkeypatch.setattr(inspection, "CachedListing", Counted)
    assert looked_at(root).restorable == list(range(batches))
    assert 0 < listed < batches / 2


class Listed(tuple[int, ...]):
    """Entries of a log, that nobody may go through."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("one by one")


@pytest.mark.parametrize(
    ("plain", "compacted", "last", "whole"),
    [
        (range(1000), (), 999, True),
        (range(1000), (), 1000, False),
        (range(990, 1000), (9, 989), 995, True),
        (range(991, 1000), (9, 989), 995, False),
        ((), (9, 989), 500, True),
        ((), (), -1, True),
        ((), (), 0, False),
    ],
)
def test_entries_of_a_log_are_not_gone_through_for_each_batch(
    plain: Iterable[int], compacted: Iterable[int], last: int, whole: bool
) -> None:
    log = LogNames(Listed(plain), Listed(compacted))
    assert inspection._has_entries(log, last) is whole


def test_sources_that_go_by_names_are_not_compared_with_one_another(tmp_path: Path) -> None:
    def work(many: int) -> int:
        root = make_logs(tmp_path / f"ck{many}", 1)
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
        named = [f'{name}:{{"logOffset":0}}' for name in ("0", *map("s{}".format, range(many)))]
        write(root, "offsets/0", "\n".join(["v2", meta, *named]))
        listing = CachedListing.of(LocalDirectory(root))
        logs = read_logs(listing)
        found: list[sources.SourceSummary] = []
        lines = lines_run(lambda: found.extend(sources.sources_of(listing, logs)))
        assert len(found) == many + 1
        assert found[0].folder is not None
        return lines

    assert work(800) < 3 * work(400)


class ComparedName(str):
    """Counts how often somebody compares it."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedName.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("content", [b"", b"v1\nnothing"], ids=["empty", "damaged"])
def test_damaged_entries_of_a_source_are_not_compared_with_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    many = 300
    root = make_logs(tmp_path / "ck", 2)
    for number in range(1, many):
        write(root, f"sources/0/{number}", content)
    write(root, f"sources/0/{many}", source_entry(many))

    class Counted(CachedListing):
        def names(self, folder: str) -> Collection[str]:
            names = super().names(folder)
            return [*map(ComparedName, names)] if folder.startswith("sources/") else names

    def counted_name(number: int, compacted: bool) -> str:
        return ComparedName(entry_name(number, compacted))

    monkeypatch.setattr(ComparedName, "compared", 0)
    monkeypatch.setattr(inspection, "CachedListing", Counted)
    monkeypatch.setattr(sources, "entry_name", counted_name)
    found = [each for each in looked_at(root).findings if each.code == Code.SOURCE_LOG_DAMAGED]
    assert len(found) == many - 1
    assert ComparedName.compared < 50 * many


def test_a_path_that_no_disk_has_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[str] = []

    def counted(path: str) -> str:
        followed.append(path)
        return path

    monkeypatch.setattr(os.path, "realpath", counted)
    assert is_same_place("file:/data/ck", "file:/data/ck")
    assert not is_same_place("file:" + "/a" * LONGEST_PATH, "file:/data/ck")
    assert max(map(len, followed)) <= LONGEST_PATH
