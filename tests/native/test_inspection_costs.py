"""An inspection goes through the files of a directory a few times, however many there are."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, Mapping, ValuesView
from pathlib import Path

from seamark.checkpoint_dir.operators import StatefulOperator
from seamark.checkpoint_dir.places.directory import FileEntry
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.state_files import StateFile
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.operators import operators_of
from seamark.native.inspect.replaced_files import strange_times
from seamark.native.inspect.state import State, Store, _by_operator


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
