"""State files that are what they should not be: copies of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from seamark.spark.native.inspect.contents import Bytes
from seamark.spark.native.inspect.findings import Code, Finding, damage, warning
from seamark.spark.native.inspect.seen import Seen
from seamark.spark.native.inspect.state import State, Store
from seamark.spark.native.inspect.times import Strange
from seamark.spark.state_files import StateFile

_ADVICE: Final = "Roll back to a batch before it, or restore a snapshot of the directory."


class _Copy(NamedTuple):
    store: Store
    file: StateFile

    @property
    def path(self) -> str:
        return self.store.path(self.file)


def copy_findings(
    seen: Seen, state: State, learned: Bytes, strange: Mapping[str, Strange]
) -> Iterator[Finding]:
    """Files that equal one of another partition, or of another version in the same one.

    Many a healthy query writes the same rows again, so equal changes of one store are told only
    when something else says that Spark has not written one of them.
    """
    for copies in _equal(state, learned).values():
        copies.sort(key=lambda copy: (copy.file.version, copy.store.folder.partition))
        first = copies[0]
        for copy in copies[1:]:
            is_other = copy.store is not first.store
            if is_other or (copy.file.extension == "zip" and _came_back(copies, copy)):
                yield _duplicated(first, copy)
        for copy in copies:
            twins = [c for c in copies if c.store is copy.store and c is not copy]
            why = _replaced(seen, copy, learned, strange) if twins else None
            # state that did not change gives the same snapshot again
            if why is not None and copy.file.extension != "snapshot":
                nearest = min(twins, key=lambda c: abs(c.file.version - copy.file.version))
                yield _repeated(nearest, copy, why)


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
    """Whether a snapshot between differs: RocksDB never has the same files twice after a change."""
    same = {(c.store.folder.path, c.file) for c in copies}
    own = [c.file.version for c in copies if c.store is copy.store]
    before = max((version for version in own if version < copy.file.version), default=None)
    return before is not None and any(
        file.extension == "zip" and (copy.store.folder.path, file) not in same
        for version, files in copy.store.files.items()
        if before < version < copy.file.version
        for file in files
    )


def _replaced(
    seen: Seen, copy: _Copy, learned: Bytes, strange: Mapping[str, Strange]
) -> str | None:
    """What tells that a file was put there by somebody else than Spark."""
    if copy.path in strange:
        early = strange[copy.path] == Strange.EARLY
        return "it is " + (
            "older than the plan of its batch" if early else "younger than its batch"
        )
    if any(f.code == Code.HADOOP_CHECKSUM and f.path == copy.path for f in learned.findings):
        return "the hidden checksum beside it is of another file"
    if seen.is_local and _hidden(copy.path) not in seen.entries:
        beside = _neighbours(copy)
        if beside and all(_hidden(copy.store.path(file)) in seen.entries for file in beside):
            return "it alone lacks the hidden checksum that Hadoop writes"
    return None


def _hidden(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def _neighbours(copy: _Copy) -> list[StateFile]:
    """The files of the same kind before and after it."""
    own = sorted(
        (file.version, file)
        for files in copy.store.files.values()
        for file in files
        if file.extension == copy.file.extension
    )
    before = [file for version, file in own if version < copy.file.version]
    after = [file for version, file in own if version > copy.file.version]
    return [*before[-1:], *after[:1]]


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
