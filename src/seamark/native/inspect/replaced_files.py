"""State files that Spark did not write there: copies of others, and files of another time.

Batch N writes version N+1 of every store after ``offsets/N`` and before ``commits/N``. A file that
was put there by something else has another time, unless that was forged. A directory that was
copied or restored as a whole has other times too, so a file only counts as strange among others
whose times are right.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from seamark.checkpoint_dir.formats.checksums import hidden_checksum
from seamark.checkpoint_dir.state_files import StateFile
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.contents import ReadState
from seamark.native.inspect.findings import ROLL_BACK, Code, Finding, damage, numbers_text, warning
from seamark.native.inspect.state import State, Store

_FEWEST: Final = 3
"""Files of one store whose times have to be right before the others' mean anything."""


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
    for copies in _equal(state, learned):
        copies.sort(key=lambda copy: (copy.file.version, copy.store.folder.partition))
        first = copies[0]
        own: dict[str, list[_Copy]] = {}  # by the store's folder, in the order of versions
        places: list[int] = []  # of each copy among those of its store
        for copy in copies:
            twins = own.setdefault(copy.store.folder.path, [])
            places.append(len(twins))
            twins.append(copy)
        for copy in copies[1:]:
            is_other = copy.store is not first.store
            twins = own[copy.store.folder.path]
            if is_other or (copy.file.extension == "zip" and _came_back(copy, twins, neighbours)):
                yield _duplicated(first, copy)
        for copy, at in zip(copies, places, strict=True):
            twins = own[copy.store.folder.path]
            why = None
            # state that did not change gives the same snapshot again
            if len(twins) > 1 and copy.file.extension != "snapshot":
                why = _replaced(listing, copy, changed, strange, neighbours)
            if why is not None:
                yield _repeated(_nearest(twins, at), copy, why)


def _nearest(twins: list[_Copy], at: int) -> _Copy:
    """The one of the same store whose version is next to that of the one at this place."""
    version = twins[at].file.version
    beside = [*twins[max(at - 1, 0) : at], *twins[at + 1 : at + 2]]
    return min(beside, key=lambda other: abs(other.file.version - version))


def _equal(state: State, learned: ReadState) -> Iterator[list[_Copy]]:
    """The files that were read, change something and have equals: those that equal each other.

    They are of one operator, one of its stores, and one kind.
    """
    groups: dict[tuple[int, str, str, bytes], list[_Copy]] = {}
    for store in state.stores:
        for file in store.all_files:
            digest = learned.digests.get(store.path(file))
            if digest is None or learned.is_void.get(store.path(file), False):
                continue
            kind = store.folder.operator, store.folder.store, file.extension, digest
            groups.setdefault(kind, []).append(_Copy(store, file))
    return (copies for copies in groups.values() if len(copies) > 1)


def _came_back(copy: _Copy, twins: list[_Copy], neighbours: _Neighbours) -> bool:
    """Whether a snapshot between differs: RocksDB never has the same files twice after a change."""
    at = bisect_left(twins, copy.file.version, key=lambda other: other.file.version)
    # the one before it is its equal, unless another one lies between the two
    return at > 0 and neighbours.of(copy)[0].version > twins[at - 1].file.version


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
    if listing.is_local and hidden_checksum(copy.path) not in listing.entries:
        beside = neighbours.of(copy)
        if beside and all(
            hidden_checksum(copy.store.path(file)) in listing.entries for file in beside
        ):
            return "it alone lacks the hidden checksum that Hadoop writes"
    return None


class _Neighbours:
    """The files of the same kind before and after one; each store is sorted once."""

    def __init__(self) -> None:
        self._sorted: dict[tuple[str, str], list[StateFile]] = {}

    def of(self, copy: _Copy) -> list[StateFile]:
        """Those of earlier and later versions, as far as there are any."""
        kind = copy.store.folder.path, copy.file.extension
        if kind not in self._sorted:
            self._sorted[kind] = sorted(
                (file for file in copy.store.all_files if file.extension == kind[1]),
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
        ROLL_BACK,
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


class StrangeTime(StrEnum):
    """How the time of a file does not fit its batch."""

    EARLY = "early"
    """It is older than the plan of its batch."""
    LATE = "late"
    """It was written after its batch was finished."""


def strange_times(listing: CachedListing, stores: Iterable[Store]) -> dict[str, StrangeTime]:
    """The files of changes that were not written when their batches ran, by their paths."""
    by_store = [(store, _times(listing, store)) for store in stores]
    right = {
        (store.folder.operator, version)
        for store, times in by_store
        for version, (_, strange) in times.items()
        if strange is None
    }
    count = Counter(store.folder.operator for store, _ in by_store)
    by_path: dict[str, StrangeTime] = {}
    for store, times in by_store:
        strange = {version: why for version, (_, why) in times.items() if why is not None}
        oldest = min(times, default=None)
        # what a restore put there is the beginning of a history
        if oldest in strange or len(times) - len(strange) < max(_FEWEST, len(strange)):
            continue
        operator = store.folder.operator
        for version, why in strange.items():
            # what was done to a directory as a whole was done to all of its stores
            if count[operator] == 1 or (operator, version) in right:
                by_path[store.path(times[version][0])] = why
    return by_path


def _times(listing: CachedListing, store: Store) -> dict[int, tuple[StateFile, StrangeTime | None]]:
    """Version → the file that its batch wrote and what is strange about it, where that is known."""
    by_version: dict[int, tuple[StateFile, StrangeTime | None]] = {}
    for version, files in store.files.items():
        own = [file for file in files if file.extension == store.change_kind]
        planned = listing.entries.get(f"offsets/{version - 1}")
        if len(own) != 1 or planned is None:
            continue
        done = listing.entries.get(f"commits/{version - 1}")
        written = listing.entries[store.path(own[0])].modified
        strange = None
        if written < planned.modified:
            strange = StrangeTime.EARLY
        elif done is not None and written > done.modified:
            strange = StrangeTime.LATE
        by_version[version] = own[0], strange
    return by_version


def order_findings(
    stores: Iterable[Store], strange: Mapping[str, StrangeTime], known: Iterable[str]
) -> Iterator[Finding]:
    """Stores whose changes do not have the order in which they were written.

    One file that is younger than its batch may have been put back after a loss: that is right.
    """
    reported = set(known)
    for store in stores:
        odd = sorted(
            (file.version, store.path(file))
            for file in store.all_files
            if store.path(file) in strange and store.path(file) not in reported
        )
        early = [path for _, path in odd if strange[path] == StrangeTime.EARLY]
        if not early and len(odd) < 2:
            continue
        versions = numbers_text([version for version, _ in odd])
        when = "before its batch was planned" if early else "after their batches were finished"
        yield warning(
            Code.STATE_OUT_OF_ORDER,
            early[0] if early else odd[0][1],
            f"operator {store.folder.operator}, partition {store.folder.partition}: version "
            f"{versions} {'were' if len(odd) > 1 else 'was'} not written when the others were: "
            f"{(early or [path for _, path in odd])[0]} is from {when}. Were files exchanged? "
            "Spark would not notice",
            "If they were not put there on purpose, roll back to a batch before them.",
        )
