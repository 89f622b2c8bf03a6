"""State files that are what they should not be: copies of others.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from seamark.checkpoint_dir.state_files import StateFile
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.contents import ReadState
from seamark.native.inspect.findings import Code, Finding, damage, warning
from seamark.native.inspect.state import State, Store
from seamark.native.inspect.times import StrangeTime

_ADVICE: Final = "Roll back to a batch before it, or restore a snapshot of the directory."


class _Copy(NamedTuple):
    store: Store
    file: StateFile

    @property
    def path(self) -> str:
        return self.store.path(self.file)


def copy_findings(
    listing: CachedListing, state: State, learned: ReadState, strange: Mapping[str, StrangeTime]
) -> Iterator[Finding]:
    """Files that equal one of another partition, or of another version in the same one.

    Many a healthy query writes the same rows again, so equal changes of one store are reported
    only when something else says that Spark has not written one of them.
    """
    neighbours = _Neighbours()
    changed = {f.path for f in learned.findings if f.code == Code.HADOOP_CHECKSUM}
    for copies in _equal(state, learned).values():
        copies.sort(key=lambda copy: (copy.file.version, copy.store.folder.partition))
        first = copies[0]
        own: dict[str, list[_Copy]] = {}  # by the store's folder, in the order of versions
        for copy in copies:
            own.setdefault(copy.store.folder.path, []).append(copy)
        between = {path: _other_zips(each) for path, each in own.items()}
        for copy in copies[1:]:
            here = copy.store.folder.path
            is_other = copy.store is not first.store
            if is_other or (copy.file.extension == "zip" and _came_back(copy, own[here], between)):
                yield _duplicated(first, copy)
        for copy in copies:
            twins = own[copy.store.folder.path]
            why = None
            # state that did not change gives the same snapshot again
            if len(twins) > 1 and copy.file.extension != "snapshot":
                why = _replaced(listing, copy, changed, strange, neighbours)
            if why is not None:
                yield _repeated(_nearest(twins, copy), copy, why)


def _nearest(twins: list[_Copy], copy: _Copy) -> _Copy:
    """The one of the same store whose version is next to it."""
    at = bisect_left(twins, copy.file.version, key=lambda other: other.file.version)
    while twins[at] is not copy:  # format 2 may have several of one version
        at += 1
    beside = [*twins[max(at - 1, 0) : at], *twins[at + 1 : at + 2]]
    return min(beside, key=lambda other: abs(other.file.version - copy.file.version))


def _equal(state: State, learned: ReadState) -> dict[tuple[int, str, str, bytes], list[_Copy]]:
    """The files that were read and change something: operator, store, kind and bytes → files."""
    groups: dict[tuple[int, str, str, bytes], list[_Copy]] = {}
    for store in state.stores:
        for file in (file for files in store.files.values() for file in files):
            digest = learned.digests.get(store.path(file))
            if digest is None or learned.is_void.get(store.path(file), False):
                continue
            kind = store.folder.operator, store.folder.store, file.extension, digest
            groups.setdefault(kind, []).append(_Copy(store, file))
    return groups


def _other_zips(copies: list[_Copy]) -> list[int]:
    """The versions of their store that have a snapshot which is none of these, ascending."""
    same = {copy.file for copy in copies}
    return sorted(
        version
        for version, files in copies[0].store.files.items()
        if any(file.extension == "zip" and file not in same for file in files)
    )


def _came_back(copy: _Copy, own: list[_Copy], between: Mapping[str, list[int]]) -> bool:
    """Whether a snapshot between differs: RocksDB never has the same files twice after a change."""
    version = copy.file.version
    at = bisect_left(own, version, key=lambda other: other.file.version)
    if at == 0:
        return False
    others = between[copy.store.folder.path]
    after = bisect_right(others, own[at - 1].file.version)
    return after < len(others) and others[after] < version


def _replaced(
    listing: CachedListing,
    copy: _Copy,
    changed: Collection[str],
    strange: Mapping[str, StrangeTime],
    neighbours: _Neighbours,
) -> str | None:
    """What shows that a file was put there by something other than Spark."""
    if copy.path in strange:
        early = strange[copy.path] == StrangeTime.EARLY
        return "it is " + (
            "older than the plan of its batch" if early else "younger than its batch"
        )
    if copy.path in changed:
        return "the hidden checksum next to it is of another file"
    if listing.is_local and _hidden(copy.path) not in listing.entries:
        beside = neighbours.of(copy)
        if beside and all(_hidden(copy.store.path(file)) in listing.entries for file in beside):
            return "it alone lacks the hidden checksum that Hadoop writes"
    return None


def _hidden(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


class _Neighbours:
    """The files of the same kind before and after one; each store is sorted once."""

    def __init__(self) -> None:
        self._sorted: dict[tuple[str, str], list[StateFile]] = {}

    def of(self, copy: _Copy) -> list[StateFile]:
        """Those of earlier and later versions, as far as there are any."""
        kind = copy.store.folder.path, copy.file.extension
        if kind not in self._sorted:
            self._sorted[kind] = sorted(
                (f for files in copy.store.files.values() for f in files if f.extension == kind[1]),
                key=lambda file: file.version,
            )
        own, version = self._sorted[kind], copy.file.version
        first = bisect_left(own, version, key=lambda file: file.version)
        after = bisect_right(own, version, key=lambda file: file.version)
        return [*own[max(first - 1, 0) : first], *own[after : after + 1]]


def _duplicated(first: _Copy, copy: _Copy) -> Finding:
    return damage(
        Code.STATE_DUPLICATED,
        copy.path,
        f"{copy.path} equals {first.path} byte for byte, and it is not empty of changes: one of "
        "them is not what Spark wrote there. Spark would not notice",
        _ADVICE,
    )


def _repeated(other: _Copy, copy: _Copy, why: str) -> Finding:
    return warning(
        Code.STATE_REPEATED,
        copy.path,
        f"version {copy.file.version} of partition {copy.store.folder.partition} (operator "
        f"{copy.store.folder.operator}) equals version {other.file.version} byte for byte, and "
        f"{why}. Spark would not notice a copy",
        "If it was not put there on purpose, roll back to a batch before it.",
    )
