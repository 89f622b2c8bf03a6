"""What the state of one batch consists of, over a whole checkpoint directory.

Tests: ``tests/checkpoint_dir/test_state_files.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from seamark import limits, limits_by_size
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.formats.hdfs_state import lineage_of, read_changes
from seamark.checkpoint_dir.formats.lz4_blocks import claimed_size
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes
from seamark.checkpoint_dir.operators import (
    LIMIT,
    MOST_PARTITIONS,
    UNKNOWN,
    StatefulOperator,
    StoreFolder,
    are_of_one_partition,
    has_no_key,
)
from seamark.checkpoint_dir.state_files import SST_FOLDER, MissingVersion, closure, parse_state_file
from seamark.errors import DamageError, SeamarkError
from seamark.spark.batch_log import CommitIds, parse_commit, parse_offsets

_AT_A_TIME: Final = 8
_MOST_KEYS_READ: Final = 64 << 10
"""The changes of an operator with one key, in a batch, take no more bytes than this."""
_MOST_CHANGES: Final = 2
"""Such an operator removes a row and puts one in a batch."""


@dataclass(frozen=True)
class StoreClosure:
    """The files that one store takes to load one version, or why it cannot."""

    operator: StatefulOperator
    folder: StoreFolder
    paths: tuple[str, ...]
    """Relative to the directory."""
    problem: str | None = None


def needs_of(files: CheckpointFiles, batch: int) -> Iterator[StoreClosure]:
    """What each store needs for the state after a batch. Only snapshots are read.

    A file that vanishes in the meantime is a problem, like one that was never there.
    """
    ids = ids_by_version(files, batch)
    require_operators(files, ids.get(batch + 1))
    stores = list(stores_of(files, ids.get(batch + 1), pinned_partitions(files, batch)))
    with ThreadPoolExecutor(_AT_A_TIME, "seamark-closure") as pool:
        yield from pool.map(lambda store: _need(files, store[0], store[1], batch + 1, ids), stores)


def pinned_partitions(files: CheckpointFiles, batch: int) -> int:
    """How many partitions the batch ran with; 0 when its offsets do not tell."""
    try:
        partitions = parse_offsets(files.read_text(f"offsets/{batch}") or "").state_partitions
    except (DamageError, ValueError):
        return 0
    return partitions if 0 <= partitions <= MOST_PARTITIONS else 0


def has_one_partition(files: CheckpointFiles, operator: StatefulOperator) -> bool:
    """Whether all rows of an operator go to one partition, whatever number Spark has noted."""
    if operator.name == LIMIT:
        return True
    schema = files.schema_beside(operator.number)
    if schema is not None:
        return has_no_key(schema)
    # Spark 3.0 and older keep no schema, so the keys have to tell
    is_open = operator.name == UNKNOWN and operator.partitions > 1
    if not is_open or files.partition_numbers(operator.number) != [0]:
        return False
    return are_of_one_partition(_keys_of_first(files, operator), operator.partitions)


def _keys_of_first(files: CheckpointFiles, operator: StatefulOperator) -> set[bytes]:
    """The keys in the changes of an operator's first partition; none when one cannot be read.

    None too when the files unpack to far more than files of one key do.
    """
    folder = f"state/{operator.number}/0"
    keys: set[bytes] = set()
    stored = plain = 0
    for name in files.names(folder):
        file = parse_state_file(name)
        if file is None or file.extension == "zip":
            continue
        if (files.size(f"{folder}/{name}") or 0) > _MOST_KEYS_READ:
            return set()
        try:
            data = files.read(f"{folder}/{name}")
            stored, plain = stored + len(data), plain + claimed_size(data)
            if plain > limits_by_size.largest_unpacked(stored):
                return set()
            changes = read_changes(data, most=_MOST_CHANGES)
        except (SeamarkError, FileNotFoundError):
            return set()
        keys.update(change.key for change in changes)
        if len(keys) > 1:
            return set()
    return keys


def require_operators(files: CheckpointFiles, ids: CommitIds | None) -> None:
    """:class:`MissingVersion` when the state of a whole operator is not there."""
    numbers = files.operator_numbers()
    gaps = [at for at, number in enumerate(numbers) if at != number]
    lost = gaps or sorted(set(ids or ()).difference(numbers))
    if lost:
        raise MissingVersion(f"the state of operator {lost[0]} is not there", where=files.uri)


def stores_of(
    files: CheckpointFiles, ids: CommitIds | None = None, pinned: int = 0
) -> Iterator[tuple[StatefulOperator, StoreFolder]]:
    """Every state store that there must be, when the batch ran with ``pinned`` partitions.

    What an operator's own note says is not changed by a repartition. Spark 2.2 and older pin
    nothing: there the operator with the most partitions tells for all of them.
    """
    operators = files.operators()
    most = pinned or max((operator.partitions for operator in operators), default=0)
    absent = 0
    for noted in operators:
        operator = noted._replace(partitions=most)
        partitions = len(ids[operator.number]) if ids and operator.number in ids else None
        if partitions is None:
            partitions = 1 if has_one_partition(files, operator) else operator.partitions
        really = operator._replace(partitions=partitions)
        for folder in really.folders():
            if not files.has_folder(folder.path):
                absent += 1
                if absent > limits.MOST_ABSENT_STORES:
                    break  # do not count up to a number only because a file says so
            yield really, folder


def ids_by_version(files: CheckpointFiles, up_to_batch: int) -> dict[int, CommitIds]:
    """State version → ids of its files, as far as the commit log reaches; empty for format 1."""
    if not _ids_in(files, up_to_batch):
        return {}  # the commit of the batch itself tells which format its state has
    by_version: dict[int, CommitIds] = {}
    for batch in files.batches("commits"):
        if batch > up_to_batch:
            break
        if ids := _ids_in(files, batch):
            by_version[batch + 1] = ids
    return by_version


def _ids_in(files: CheckpointFiles, batch: int) -> CommitIds | None:
    try:
        return parse_commit(files.read_text(f"commits/{batch}") or "")[1]
    except DamageError:
        return None  # reported by the reader of that batch


def _need(
    files: CheckpointFiles,
    operator: StatefulOperator,
    folder: StoreFolder,
    version: int,
    ids: Mapping[int, CommitIds],
) -> StoreClosure:
    chosen = None
    if ids:
        store = operator.stores.index(folder.store)
        try:
            chosen = {
                number: each[operator.number][folder.partition][store]
                for number, each in ids.items()
                # before a repartition there were fewer of them
                if number == version or folder.partition < len(each.get(operator.number, ()))
            }
        except (KeyError, IndexError):
            return StoreClosure(operator, folder, (), "the commit log names no file for it")
    zips: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        zips[name] = files.read(f"{folder.path}/{name}")
        return zips[name]

    present = files.names_in(folder.path)
    try:
        newest = f"{version}_{chosen.get(version)}.changelog" if chosen is not None else ""
        if chosen is not None and newest in present:
            # it knows the ids of versions that the commit log no longer names
            chosen = lineage_of(files.read(f"{folder.path}/{newest}")) | chosen
        names = closure(present, version, read, chosen)
        for name in names:
            _require_size(files, folder, name, zips)
    except FileNotFoundError as error:
        return StoreClosure(operator, folder, (), f"{error.filename or error} vanished")
    except SeamarkError as error:
        return StoreClosure(operator, folder, (), error.what)
    return StoreClosure(operator, folder, tuple(f"{folder.path}/{name}" for name in names))


def _require_size(
    files: CheckpointFiles, folder: StoreFolder, name: str, zips: Mapping[str, bytes]
) -> None:
    """:class:`MissingVersion` for a file that cannot be what Spark has written."""
    size = files.size(f"{folder.path}/{name}")
    if size == 0:
        raise MissingVersion(f"{name} has no bytes")
    for sst, expected in sst_sizes(zips[name]).items() if name in zips else ():
        actual = files.size(f"{folder.path}/{SST_FOLDER}/{sst}")
        if actual is not None and actual != expected:
            raise MissingVersion(f"{sst} has {actual} bytes, and {name} says {expected}")
