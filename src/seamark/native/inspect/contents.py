"""What only the bytes of state files can show: copies, swaps, torn files, checksums.

Small files are read by default, up to a limit in all; everything with ``read_data``.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from seamark import limits_by_size
from seamark.checkpoint_dir.formats.checksums import (
    hadoop_crc_matches,
    hidden_checksum,
    spark_crc_matches,
)
from seamark.checkpoint_dir.formats.hdfs_state import StateChange, read_changes
from seamark.checkpoint_dir.formats.lz4_blocks import NOT_STATE, NotDecodable, claimed_size
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes
from seamark.checkpoint_dir.state_files import parse_state_file
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
from seamark.native.inspect.state import State, Store

Advance = Callable[[int], None]

_SMALL: Final = 1 << 20
_MOST: Final = 16 << 20
_MOST_LOCAL: Final = 20_000
_MOST_REMOTE: Final = 2_000
_MOST_KEYS: Final = 4_000_000
_EMPTY_OF_OTHER_CODECS: Final = 64
_CODEC: Final = "spark.sql.streaming.stateStore.compression.codec"


@dataclass
class ReadState:
    """What was learned from the bytes of the files that were read."""

    digests: dict[str, bytes] = field(default_factory=dict)
    is_void: dict[str, bool] = field(default_factory=dict)
    """Whether a file of changes changes nothing; absent for files without rows of their own."""
    findings: list[Finding] = field(default_factory=list)
    unread: int = 0
    """Files that were too many or too large to read, or whose rows were too many."""


@dataclass(frozen=True, kw_only=True)
class _FileCheck:
    """What reading one file has shown."""

    path: str
    digest: bytes | None = None
    is_void: bool | None = None
    findings: tuple[Finding, ...] = ()
    keys: frozenset[int] = frozenset()
    """Hashes of the keys that it puts."""
    is_unread: bool = False
    """Whether its rows were not looked at, because others had too many."""


def read_state(
    listing: CachedListing,
    state: State,
    conf: Mapping[str, str],
    *,
    read_data: bool,
    advance: Advance | None = None,
) -> ReadState:
    """Read what a restart would load and what may be a copy of something, within the limits."""
    learned = ReadState()
    needed = {path for paths in state.needed.values() for path in paths}
    chosen = _chosen(listing, state, needed, read_data, learned)
    knows_codec = conf.get(_CODEC, "") in ("lz4", "zstd", "snappy", "lzf")
    records, most = 0, limits_by_size.most_records(listing.size_of(chosen))
    turn = threading.Lock()  # the rows of one file at a time: a small file may hold very many

    def one(path: str) -> _FileCheck:
        data = listing.data(path)
        if data is None:
            return _FileCheck(path=path)
        if advance is not None:
            advance(len(data))
        is_needed = path in needed
        problems = [*_checksum_findings(listing, path, data, is_needed)]
        digest = hashlib.sha256(data).digest()
        if chosen[path] is None:
            return _FileCheck(
                path=path, digest=digest, is_void=_has_no_rows(path, data), findings=tuple(problems)
            )
        nonlocal records
        with turn:
            if records > most:
                return _FileCheck(path=path, findings=tuple(problems), is_unread=True)
            changes, is_void, problem = _rows(path, data, is_needed, knows_codec)
            # what cannot be read has taken its time as well
            records += len(changes) or min(
                claimed_size(data) // 8, limits_by_size.most_records(len(data))
            )
            # what is removed may be named behind a checksum
            keys = frozenset(hash(c.key) for c in changes if c.value is not None and is_needed)
            del changes
        problems += [problem] if problem is not None else []
        return _FileCheck(
            path=path, digest=digest, is_void=is_void, findings=tuple(problems), keys=keys
        )

    owners: dict[tuple[int, str], dict[int, int]] = {}
    two: dict[tuple[int, str], tuple[str, int]] = {}
    for check in listing.in_parallel(one, chosen):
        if check.digest is not None:
            learned.digests[check.path] = check.digest
        if check.is_void is not None:
            learned.is_void[check.path] = check.is_void
        learned.findings += check.findings
        learned.unread += check.is_unread
        if (store := chosen[check.path]) is not None:
            _note_owners(owners, two, store, check)
    learned.findings += [_two_owners(op, *where) for (op, _), where in sorted(two.items())]
    return learned


def _chosen(
    listing: CachedListing, state: State, needed: set[str], read_data: bool, learned: ReadState
) -> dict[str, Store | None]:
    """The files to read, with their stores where their rows can be read."""
    stores = {store.folder.path: store for store in state.stores}
    paths: list[str] = sorted(needed)
    if read_data:
        paths += [store.path(file) for store in state.stores for file in store.all_files]
    else:
        paths += _alike(listing, state.stores)
        paths += _beside_snapshots(state.stores)
    owners: dict[str, Store | None] = {}
    most_files = _MOST_LOCAL if listing.is_local else _MOST_REMOTE
    total = 0
    for path in dict.fromkeys(paths):
        size = listing.entries[path].size if path in listing.entries else 0
        full = total + size > _MOST or len(owners) >= most_files
        if not read_data and (size > _SMALL or full):
            learned.unread += 1
            continue
        total += size
        folder, _, name = path.rpartition("/")
        file = parse_state_file(name)
        rows = file is not None and file.extension != "zip"
        owners[path] = stores.get(folder) if rows else None
    if not read_data:
        listing.fetch(owners)
    return owners


def _alike(listing: CachedListing, stores: Iterable[Store]) -> Iterator[str]:
    """State files that have the size of another one of the same kind."""
    groups: dict[tuple[int, str, str, int], list[str]] = {}
    for store in stores:
        for file in store.all_files:
            path = store.path(file)
            size = listing.entries[path].size
            key = store.folder.operator, store.folder.store, file.extension, size
            groups.setdefault(key, []).append(path)
    yield from (path for paths in groups.values() if len(paths) > 1 for path in paths)


def _beside_snapshots(stores: Iterable[Store]) -> Iterator[str]:
    """Snapshots that the HDFS-backed provider made, and all deltas of their stores."""
    for store in stores:
        if any(file.extension == "snapshot" for file in store.all_files):
            yield from map(store.path, store.all_files)


def _has_no_rows(path: str, data: bytes) -> bool | None:
    """Whether a RocksDB snapshot is one of an empty store: all of those may be alike."""
    try:
        return not sst_sizes(data) if path.endswith(".zip") else None
    except DamageError:
        return None  # reported when it is unpacked


def _rows(
    path: str, data: bytes, needed: bool, knows_codec: bool
) -> tuple[list[StateChange], bool, Finding | None]:
    """(what a file changes, whether that is nothing, what is wrong with it)."""
    try:
        changes = read_changes(data)
    except NotDecodable:
        return [], len(data) <= _EMPTY_OF_OTHER_CODECS, None
    except DamageError as error:
        # a codec of the user's own looks like this too
        if error.what == NOT_STATE and not knows_codec:
            return [], False, None
        where = f" ({error.where})" if error.where else ""
        advice = "The state of that batch is lost here; roll back to an earlier batch."
        stops = CANNOT_LOAD if needed else None
        what = f"{path}: {error.what}{where}"
        return [], False, damage(Code.STATE_UNREADABLE, path, what, advice, stops)
    return changes, not changes, None


def _note_owners(
    owners: dict[tuple[int, str], dict[int, int]],
    two: dict[tuple[int, str], tuple[str, int]],
    store: Store,
    check: _FileCheck,
) -> None:
    """Remember which partition has a key, and where another one has it too."""
    which = store.folder.operator, store.folder.store
    known = owners.setdefault(which, {})
    if len(known) > _MOST_KEYS:
        return
    for key in check.keys:
        owner = known.setdefault(key, store.folder.partition)
        if owner != store.folder.partition:
            two.setdefault(which, (check.path, owner))


def _two_owners(operator: int, path: str, other: int) -> Finding:
    return damage(
        Code.KEY_IN_TWO_PARTITIONS,
        path,
        f"operator {operator}: {path} has a key that partition {other} has as well, and a key "
        "belongs to one partition: files were swapped or copied. Spark would not notice",
        ROLL_BACK,
    )


# checksum files


def _checksum_findings(
    listing: CachedListing, path: str, data: bytes, needed: bool
) -> Iterator[Finding]:
    beside = f"{path}.crc"
    crc = listing.data(beside) if beside in listing.entries else None
    if crc is not None and not spark_crc_matches(data, crc):
        yield damage(
            Code.SPARK_CHECKSUM,
            path,
            f"{path} differs from the checksum that Spark put next to it",
            ROLL_BACK_EARLIER,
            CANNOT_LOAD if needed else None,
        )
    yield from hadoop_findings(listing, path, data, needed)


def hadoop_findings(
    listing: CachedListing, path: str, data: bytes, needed: bool = True
) -> Iterator[Finding]:
    """What Hadoop's hidden checksum file says about a file that was read. On local disks only."""
    hidden = hidden_checksum(path)
    size = listing.size(hidden)
    if not listing.is_local or size is None or size > _MOST:
        return
    crc = listing.data(hidden)
    if crc is not None and not hadoop_crc_matches(data, crc):
        message = (
            ". Spark's default file manager, by FileContext, does not look at it; under "
            "FileSystemBasedCheckpointFileManager a restart fails with a ChecksumException"
        )
        yield warning(
            Code.HADOOP_CHECKSUM,
            path,
            f"{path} differs from the hidden checksum {hidden.rsplit('/', 1)[-1]} next to it: it "
            f"was changed or replaced{message if needed else ''}",
            "Put the right file back. Where it is known to be right, remove the checksum file.",
        )
