"""State files that are what they should not be: copies of others, snapshots of another history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from seamark.errors import DamageError
from seamark.spark.native.inspect.contents import Bytes
from seamark.spark.native.inspect.findings import Code, Finding, damage, warning
from seamark.spark.native.inspect.seen import Seen
from seamark.spark.native.inspect.state import State, Store
from seamark.spark.native.state.data import same_state
from seamark.spark.native.state.lz4_blocks import NotDecodable
from seamark.spark.state_files import StateFile

_A_HABIT: Final = 4
"""When one file in so many repeats another, the query itself repeats its rows."""
_MOST: Final = 256 << 20
"""Bytes of one store that are held in memory to compare a snapshot with its deltas."""
_CHECKSUMS: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_ADVICE: Final = "Roll back to a batch before it, or restore a snapshot of the directory."


class _Copy(NamedTuple):
    store: Store
    file: StateFile

    @property
    def path(self) -> str:
        return self.store.path(self.file)


def copy_findings(state: State, learned: Bytes) -> Iterator[Finding]:
    """Files that equal one of another partition, or of another version in the same one."""
    repeated: dict[int, list[Finding]] = {}
    telling: Counter[int] = Counter()
    for (operator, *_), copies in _equal(state, learned).items():
        telling[operator] += sum(not copy.file.is_snapshot for copy in copies)
        copies.sort(key=lambda copy: (copy.file.version, copy.store.folder.partition))
        first = copies[0]
        for copy in copies[1:]:
            if copy.store.folder.path != first.store.folder.path:
                yield _duplicated(first, copy)
            # state that did not change gives the same snapshot again
            elif not copy.file.is_snapshot:
                repeated.setdefault(operator, []).append(_repeated(first, copy))
            elif copy.file.extension == "zip" and _came_back(copies, copy):
                yield _duplicated(first, copy)
    for operator, findings in repeated.items():
        is_habit = len(findings) > 2 and len(findings) * _A_HABIT > telling[operator]
        if not is_habit:
            yield from findings


def _equal(state: State, learned: Bytes) -> dict[tuple[int, str, str, bytes], list[_Copy]]:
    """The files that were read and change something: operator, store, kind and bytes → files."""
    found: dict[tuple[int, str, str, bytes], list[_Copy]] = {}
    for store in state.stores:
        for file in (file for files in store.files.values() for file in files):
            digest = learned.digests.get(store.path(file))
            if digest is None or learned.is_void.get(store.path(file), False):
                continue
            kind = store.folder.operator, store.folder.store, file.extension, digest
            found.setdefault(kind, []).append(_Copy(store, file))
    return found


def _came_back(copies: list[_Copy], copy: _Copy) -> bool:
    """Whether a version between differs: RocksDB never has the same files twice after a change."""
    before = max(c.file.version for c in copies if c.file.version < copy.file.version)
    return any(before < version < copy.file.version for version in copy.store.files)


def _duplicated(first: _Copy, copy: _Copy) -> Finding:
    return damage(
        Code.STATE_DUPLICATED,
        copy.path,
        f"{copy.path} equals {first.path} byte for byte, and it is not empty of changes: one of "
        "them is not what Spark wrote there. Spark would not notice",
        _ADVICE,
    )


def _repeated(first: _Copy, copy: _Copy) -> Finding:
    return warning(
        Code.STATE_REPEATED,
        copy.path,
        f"version {copy.file.version} of partition {copy.store.folder.partition} (operator "
        f"{copy.store.folder.operator}) equals version {first.file.version} byte for byte. Spark "
        "would not notice a copy",
        "It may be right: a batch that changes no value writes the same rows again. If it cannot "
        "be, roll back to a batch before it.",
    )


# snapshots


def snapshot_findings(
    seen: Seen, state: State, learned: Bytes, conf: Mapping[str, str]
) -> Iterator[Finding]:
    """Snapshots that an abandoned history left behind and that this one has passed since."""
    checksums = conf.get(_CHECKSUMS, "false") == "true"
    for store in state.stores:
        for version in sorted(store.files):
            for file in store.files[version]:
                if file.extension == "snapshot":
                    yield from _against_deltas(seen, store, file, learned, checksums)
                elif file.extension == "zip":
                    yield from _against_times(seen, store, file)


def _against_deltas(
    seen: Seen, store: Store, snapshot: StateFile, learned: Bytes, checksums: bool
) -> Iterator[Finding]:
    base: StateFile | None = None
    deltas: list[StateFile] = []
    for at in range(snapshot.version, 0, -1):
        files = {file.extension: file for file in store.files.get(at, ())}
        if at < snapshot.version and "snapshot" in files:
            base = files["snapshot"]
            break
        if "delta" not in files:
            return  # purged: there is nothing to compare with
        deltas.append(files["delta"])
    wanted = [snapshot, *deltas, *([base] if base else [])]
    paths = [store.path(file) for file in wanted]
    if not all(path in learned.digests for path in paths) or seen.size_of(paths) > _MOST:
        return
    data = {file: seen.data(store.path(file)) for file in wanted}
    found = {file: each for file, each in data.items() if each is not None}
    if len(found) != len(data):
        return
    try:
        same = same_state(
            found[snapshot],
            (found[file] for file in reversed(deltas)),
            found[base] if base else None,
            row_checksums=checksums,
        )
    except (DamageError, NotDecodable):
        return  # told by whoever reads each file
    if not same:
        since = f"{base.name} and the deltas after it" if base else "its deltas"
        yield damage(
            Code.SNAPSHOT_DISAGREES,
            store.path(snapshot),
            f"{store.path(snapshot)} is not the state that {since} make: it is left from an "
            "abandoned history, or a delta is not the right one. Spark prefers it and would not "
            "notice",
            _ADVICE,
        )


def _against_times(seen: Seen, store: Store, snapshot: StateFile) -> Iterator[Finding]:
    """A snapshot that is older than the batch whose changes lie beside it."""
    change = next((f for f in store.files[snapshot.version] if f.extension == "changelog"), None)
    planned = seen.entries.get(f"offsets/{snapshot.version - 1}")
    if change is None or planned is None or snapshot.uid is not None:
        return
    made = seen.entries[store.path(snapshot)].modified
    # a copied directory has both before its logs, or both after
    if made < planned.modified <= seen.entries[store.path(change)].modified:
        yield warning(
            Code.SNAPSHOT_STALE,
            store.path(snapshot),
            f"{store.path(snapshot)} is older than the plan of its batch, and {change.name} is "
            "not: it is left from an abandoned history. Spark prefers it and would not notice",
            _ADVICE,
        )
