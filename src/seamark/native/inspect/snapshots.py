"""Snapshots of another history: what they hold is not what the changes next to them make.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from seamark.checkpoint_dir.formats.hdfs_state import same_state
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.checkpoint_dir.state_files import StateFile, needed_ssts
from seamark.errors import DamageError
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.contents import ReadState
from seamark.native.inspect.findings import Code, Finding, damage, warning
from seamark.native.inspect.rocksdb_snapshots import can_read, rows_in, with_changes
from seamark.native.inspect.state import State, Store

_MOST: Final = 256 << 20
"""Bytes of one store that are held in memory to compare a snapshot with its changes."""
_CHECKSUMS: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_ADVICE: Final = "Roll back to a batch before it, or restore a snapshot of the directory."


def snapshot_findings(
    listing: CachedListing,
    state: State,
    learned: ReadState,
    conf: Mapping[str, str],
    *,
    read_data: bool,
) -> Iterator[Finding]:
    """Snapshots that an abandoned history left behind and that this one has passed since.

    RocksDB's own are opened with ``read_data``, where its code is installed.
    """
    checksums = conf.get(_CHECKSUMS, "false") == "true"
    opens = read_data and not checksums and can_read()
    for store in state.stores:
        for file in sorted(store.all_files, key=lambda file: file.version):
            if file.extension == "snapshot":
                yield from _against_deltas(listing, store, file, learned, checksums)
            elif file.extension == "zip":
                differences = list(_against_changelogs(listing, store, file)) if opens else []
                yield from differences or _against_times(listing, store, file)


def _made_of(
    store: Store, snapshot: StateFile, kind: str
) -> tuple[StateFile | None, list[StateFile]] | None:
    """The snapshot before one, if any, and the changes since, newest first; None when unknown."""
    changes: list[StateFile] = []
    for at in range(snapshot.version, 0, -1):
        files = store.files.get(at, ())
        bases = [file for file in files if file.is_snapshot and at < snapshot.version]
        if bases:
            return bases[0], changes
        own = [file for file in files if file.extension == kind]
        if len(own) != 1:
            return None  # purged, or nothing says which one counts
        changes += own
    return None, changes


def _against_deltas(
    listing: CachedListing, store: Store, snapshot: StateFile, learned: ReadState, checksums: bool
) -> Iterator[Finding]:
    made_of = _made_of(store, snapshot, "delta")
    if made_of is None:
        return
    base, deltas = made_of
    to_read = [snapshot, *deltas, *([base] if base else [])]
    paths = [store.path(file) for file in to_read]
    if not all(path in learned.digests for path in paths) or listing.size_of(paths) > _MOST:
        return
    data = {file: listing.data(store.path(file)) for file in to_read}
    contents = {file: each for file, each in data.items() if each is not None}
    if len(contents) != len(data):
        return
    try:
        same = same_state(
            contents[snapshot],
            (contents[file] for file in reversed(deltas)),
            contents[base] if base else None,
            row_checksums=checksums,
        )
    except (DamageError, NotDecodable):
        return  # reported by the reader of each file
    if not same:
        since = f"{base.name} and the deltas after it" if base else "its deltas"
        yield _disagrees(store, snapshot, since)


def _disagrees(store: Store, snapshot: StateFile, since: str) -> Finding:
    return damage(
        Code.SNAPSHOT_DISAGREES,
        store.path(snapshot),
        f"{store.path(snapshot)} is not the state that {since} make: it is left from an "
        "abandoned history, or one of them is not the right one. Spark prefers it and would not "
        "notice",
        _ADVICE,
    )


def _against_changelogs(
    listing: CachedListing, store: Store, snapshot: StateFile
) -> Iterator[Finding]:
    """A RocksDB snapshot whose rows are not those of an earlier one and the changes since."""
    made_of = _made_of(store, snapshot, "changelog")
    if made_of is None:
        return
    base, changes = made_of
    here = store.folder.path

    def data(name: str) -> bytes:
        sst = listing.data(f"{here}/{name}")
        if sst is None:
            raise NotDecodable(f"{name} is not there")
        return sst

    def rows(file: StateFile) -> dict[bytes, bytes]:
        zipped = data(file.name)
        if listing.size_of(f"{here}/{name}" for name in needed_ssts(zipped)) > _MOST:
            raise NotDecodable("it is too large to compare")
        return rows_in(zipped, data)

    try:
        if listing.size_of(map(store.path, changes)) > _MOST:
            return
        before = rows(base) if base else {}
        after = with_changes(before, (data(file.name) for file in reversed(changes)))
        same = after == rows(snapshot)
    except (DamageError, NotDecodable):
        return  # reported by the reader of each file
    if not same:
        since = f"{base.name} and the changelogs after it" if base else "its changelogs"
        yield _disagrees(store, snapshot, since)


def _against_times(listing: CachedListing, store: Store, snapshot: StateFile) -> Iterator[Finding]:
    """A snapshot that is older than the batch whose changes lie next to it."""
    change = next((f for f in store.files[snapshot.version] if f.extension == "changelog"), None)
    planned = listing.entries.get(f"offsets/{snapshot.version - 1}")
    if change is None or planned is None or snapshot.uid is not None:
        return
    made = listing.entries[store.path(snapshot)].modified
    # a copied directory has both before its logs, or both after
    if made < planned.modified <= listing.entries[store.path(change)].modified:
        yield warning(
            Code.SNAPSHOT_STALE,
            store.path(snapshot),
            f"{store.path(snapshot)} is older than the plan of its batch, and {change.name} is "
            "not: it is left from an abandoned history. Spark prefers it and would not notice",
            _ADVICE,
        )
