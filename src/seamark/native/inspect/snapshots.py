"""Snapshots of state stores: whether they are whole, and what the changes next to them make.

One that is not what the changes make is of another history. The rows of RocksDB's snapshots are
read by RocksDB itself, where ``rocksdict`` is installed, in a process of its own.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Final

from seamark import limits
from seamark.checkpoint_dir.formats.hdfs_state import MadeState
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes, zip_problems
from seamark.checkpoint_dir.operators import StoreFolder
from seamark.checkpoint_dir.state_files import SST_FOLDER, StateFile, needed_ssts
from seamark.errors import DamageError
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import (
    CANNOT_LOAD,
    ROLL_BACK,
    ROLL_BACK_EARLIER,
    Code,
    Finding,
    damage,
    warning,
)
from seamark.native.inspect.rocksdb_rows import Verdict
from seamark.native.inspect.rocksdb_snapshots import (
    MOST_STORED,
    MadeByChanges,
    compared_snapshots,
)

if TYPE_CHECKING:
    from seamark.native.inspect.contents import ReadState
    from seamark.native.inspect.state import State, Store

_CHECKSUMS: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_LARGEST_ZIP: Final = 64 << 20


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
    compared = dict(_against_changelogs(listing, state)) if opens else {}
    for store in state.stores:
        for version, kinds in _by_version(store):
            if "snapshot" in kinds:
                made_of = _made_of(store, version, "delta")
                yield from _against_deltas(
                    listing, store, kinds["snapshot"], made_of, learned, checksums
                )
            for file in kinds.get("zip", []):
                finding = compared.get(store.path(file))
                if finding is not None:
                    yield finding
                if finding is None or finding.code is not Code.SNAPSHOT_DISAGREES:
                    yield from _against_times(listing, store, file)


def _by_version(store: Store) -> Iterator[tuple[int, dict[str, list[StateFile]]]]:
    """The files of a store by version and kind, so that all snapshots of one are seen together."""
    files = sorted(store.all_files, key=lambda file: (file.version, file.uid or ""))
    for version, of_version in groupby(files, lambda file: file.version):
        kinds: dict[str, list[StateFile]] = {}
        for file in of_version:
            kinds.setdefault(file.extension, []).append(file)
        yield version, kinds


_MadeOf = tuple[StateFile | None, list[StateFile]]
"""The snapshot before a version, if any, and the changes since, newest first."""


def _made_of(store: Store, version: int, kind: str) -> _MadeOf | None:
    """What the state of a version is made of; None when that is unknown."""
    changes: list[StateFile] = []
    for at in range(version, 0, -1):
        files = store.files.get(at, ())
        bases = [file for file in files if file.is_snapshot and at < version]
        if bases:
            return bases[0], changes
        own = [file for file in files if file.extension == kind]
        if len(own) != 1:
            return None  # purged, or nothing says which one counts
        changes += own
    return None, changes


def _against_deltas(
    listing: CachedListing,
    store: Store,
    snapshots: list[StateFile],
    made_of: _MadeOf | None,
    learned: ReadState,
    checksums: bool,
) -> Iterator[Finding]:
    """Snapshots of one version whose rows are not those of an earlier one and the changes since."""
    if made_of is None:
        return
    base, deltas = made_of
    parts = [*deltas, *([base] if base else [])]
    size = listing.size_of(map(store.path, parts))
    if not all(store.path(file) in learned.digests for file in parts) or size > MOST_STORED:
        return
    contents = {file: listing.data(store.path(file)) for file in parts}
    if None in contents.values():
        return
    made = MadeState(
        [contents[file] or b"" for file in reversed(deltas)],
        contents[base] if base else None,
        row_checksums=checksums,
    )
    since = f"{base.name} and the deltas after it" if base else "its deltas"
    for snapshot in snapshots:
        path = store.path(snapshot)
        data = listing.data(path) if path in learned.digests else None
        if data is None or size + len(data) > MOST_STORED:
            continue
        try:
            same = made.equals(data)
        except (DamageError, NotDecodable):
            continue  # reported by the reader of each file
        if not same:
            yield _disagrees(store, snapshot, since)


def _disagrees(store: Store, snapshot: StateFile, since: str) -> Finding:
    return damage(
        Code.SNAPSHOT_DISAGREES,
        store.path(snapshot),
        f"{store.path(snapshot)} is not the state that {since} make: it is left from an "
        "abandoned history, or one of them is not the right one. Spark prefers it and would not "
        "notice",
        ROLL_BACK,
    )


def _against_changelogs(listing: CachedListing, state: State) -> Iterator[tuple[str, Finding]]:
    """The same of RocksDB's snapshots, by their paths; or that they take too much to compare."""
    for store, base, snapshot, verdict in compared_snapshots(listing, _made_by_changes(state)):
        path = store.path(snapshot)
        if verdict is Verdict.DIFFERS:
            since = f"{base.name} and the changelogs after it" if base else "its changelogs"
            yield path, _disagrees(store, snapshot, since)
        elif verdict is Verdict.BEYOND_LIMITS:
            yield (
                path,
                warning(
                    Code.SNAPSHOT_NOT_COMPARED,
                    path,
                    f"{path} is not compared with the changes before it: its files unpack to far "
                    "more than such files do, or cannot be read in the time for files of their "
                    "size",
                    "Treat the directory as one of unknown origin.",
                ),
            )


def _made_by_changes(state: State) -> Iterator[MadeByChanges]:
    for store in state.stores:
        for version, kinds in _by_version(store):
            if "zip" in kinds and (made_of := _made_of(store, version, "changelog")) is not None:
                base, changes = made_of
                yield MadeByChanges(store, base, changes[::-1], kinds["zip"])


def _against_times(listing: CachedListing, store: Store, snapshot: StateFile) -> Iterator[Finding]:
    """A snapshot that is older than the batch whose changes lie next to it."""
    planned = listing.entries.get(f"offsets/{snapshot.version - 1}")
    if planned is None or snapshot.uid is not None:
        return
    change = next((f for f in store.files[snapshot.version] if f.extension == "changelog"), None)
    if change is None:
        return
    made = listing.entries[store.path(snapshot)].modified
    # a copied directory has both before its logs, or both after
    if made < planned.modified <= listing.entries[store.path(change)].modified:
        yield warning(
            Code.SNAPSHOT_STALE,
            store.path(snapshot),
            f"{store.path(snapshot)} is older than the plan of its batch, and {change.name} is "
            "not: it is left from an abandoned history. Spark prefers it and would not notice",
            ROLL_BACK,
        )


def zip_findings(
    listing: CachedListing, folder: StoreFolder, path: str, named: str
) -> Iterator[Finding]:
    """What is wrong with one RocksDB snapshot and the files that it names."""
    if listing.entries[path].size > _LARGEST_ZIP:
        return
    data = listing.data(path)
    if data is None:
        return  # removed in the meantime
    problem = _problem(data)
    if problem is not None:
        what = f"{named}: the snapshot {path.rsplit('/', 1)[1]} cannot be unpacked: {problem}"
        yield damage(Code.ZIP_UNREADABLE, path, what, ROLL_BACK_EARLIER, CANNOT_LOAD)
        return
    sizes = sst_sizes(data)
    short = path.rsplit("/", 1)[1]
    missing = 0
    for name in needed_ssts(data):
        file = f"{folder.path}/{name}"
        recorded_size = sizes.get(name.removeprefix(f"{SST_FOLDER}/"))
        if file not in listing.entries:
            missing += 1
            if missing > limits.MOST_MISSING_NAMED:
                continue
            what = f"{named}: {name} is not there, and {short} needs it"
            yield damage(Code.SST_MISSING, file, what, ROLL_BACK_EARLIER, CANNOT_LOAD)
        elif recorded_size is not None and listing.entries[file].size != recorded_size:
            size = listing.entries[file].size
            what = f"{named}: {name} has {size} bytes, and {short} says {recorded_size}"
            yield damage(Code.SST_SIZE, file, what, ROLL_BACK_EARLIER, CANNOT_LOAD)
    if missing > limits.MOST_MISSING_NAMED:
        what = f"{named}: {missing} files that {short} needs are not there"
        yield damage(Code.SST_MISSING, path, what, ROLL_BACK_EARLIER, CANNOT_LOAD)


def _problem(data: bytes) -> str | None:
    try:
        needed_ssts(data)
        return next(iter(zip_problems(data)), None)
    except DamageError as error:
        return error.what


def can_read() -> bool:
    """Whether RocksDB's own code is there."""
    return find_spec("rocksdict") is not None
