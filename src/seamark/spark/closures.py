"""What the state of one batch consists of, over a whole checkpoint directory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from seamark import limits
from seamark.errors import DamageError, SeamarkError
from seamark.spark.checkpoint_files import CheckpointFiles, StatefulOperator, StoreFolder
from seamark.spark.logs import CommitIds, parse_commit, parse_offsets
from seamark.spark.native.state.data import lineage_of
from seamark.spark.native.state.rocksdb_zip import sst_sizes
from seamark.spark.state_files import SST_FOLDER, MissingVersion, closure

_AT_A_TIME: Final = 8
_SCHEMA: Final = b'{"type":"struct"'
_NO_KEY: Final = _SCHEMA + b',"fields":[]}'
_OF_ONE_PARTITION: Final = frozenset({"globalLimit"})
_MOST_PARTITIONS: Final = 1_000_000


@dataclass(frozen=True)
class Need:
    """The files that one store takes to load one version, or why it cannot."""

    operator: StatefulOperator
    folder: StoreFolder
    paths: tuple[str, ...]
    """Relative to the directory."""
    problem: str | None = None


def needs_of(files: CheckpointFiles, batch: int) -> Iterator[Need]:
    """What each store needs for the state after a batch. Only snapshots are read.

    A file that vanishes meanwhile is a problem like one that was never there.
    """
    ids = ids_by_version(files, batch)
    require_operators(files, ids.get(batch + 1))
    stores = list(stores_of(files, ids.get(batch + 1), _pinned_partitions(files, batch)))
    with ThreadPoolExecutor(_AT_A_TIME, "seamark-closure") as pool:
        yield from pool.map(lambda store: _need(files, store[0], store[1], batch + 1, ids), stores)


def _pinned_partitions(files: CheckpointFiles, batch: int) -> int:
    """How many partitions the batch ran with; 0 when its offsets do not tell."""
    try:
        told = parse_offsets(files.read_text(f"offsets/{batch}") or "").state_partitions
    except (DamageError, ValueError):
        return 0
    return told if 0 <= told <= _MOST_PARTITIONS else 0


def has_one_partition(files: CheckpointFiles, operator: StatefulOperator) -> bool:
    """Whether all rows of an operator go to one partition, whatever number Spark has noted."""
    if operator.name in _OF_ONE_PARTITION:
        return True
    try:
        schema = files.read(f"state/{operator.number}/0/_metadata/schema")
    except FileNotFoundError:
        return False
    # the key's schema stands before the value's
    return schema.find(_SCHEMA) == schema.find(_NO_KEY) >= 0


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

    What an operator's own note says is not changed by a repartition.
    """
    for described in files.operators():
        operator = described._replace(partitions=pinned or described.partitions)
        partitions = len(ids[operator.number]) if ids and operator.number in ids else None
        if partitions is None:
            partitions = 1 if has_one_partition(files, operator) else operator.partitions
        really = operator._replace(partitions=partitions)
        absent = 0
        for folder in really.folders():
            absent += not files.has_folder(folder.path)
            if absent > limits.MOST_ABSENT_STORES:
                break  # a number that somebody has noted is no reason to count up to it
            yield really, folder


def ids_by_version(files: CheckpointFiles, up_to_batch: int) -> dict[int, CommitIds]:
    """State version → ids of its files, as far as the commit log reaches; empty for format 1."""
    found: dict[int, CommitIds] = {}
    for batch in files.batches("commits"):
        if batch > up_to_batch:
            break
        text = files.read_text(f"commits/{batch}")
        try:
            ids = parse_commit(text or "")[1]
        except DamageError:
            continue  # told by whoever reads that batch
        if ids is None:
            if not found:
                return {}  # the first tells for all
            continue
        found[batch + 1] = ids
    return found


def _need(
    files: CheckpointFiles,
    operator: StatefulOperator,
    folder: StoreFolder,
    version: int,
    ids: Mapping[int, CommitIds],
) -> Need:
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
            return Need(operator, folder, (), "the commit log names no file for it")
    zips: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        zips[name] = files.read(f"{folder.path}/{name}")
        return zips[name]

    present = files.names_in(folder.path)
    try:
        if chosen is not None:
            chosen = _lineage(files, folder, present, version, chosen) | chosen
        names = closure(present, version, read, chosen)
        for name in names:
            _require_size(files, folder, name, zips)
    except FileNotFoundError as error:
        return Need(operator, folder, (), f"{error.filename or error} vanished")
    except SeamarkError as error:
        return Need(operator, folder, (), error.what)
    return Need(operator, folder, tuple(f"{folder.path}/{name}" for name in names))


def _lineage(
    files: CheckpointFiles,
    folder: StoreFolder,
    present: Collection[str],
    version: int,
    chosen: Mapping[int, str],
) -> dict[int, str]:
    """Ids of versions that the commit log no longer names: the newest changelog knows them."""
    newest = f"{version}_{chosen.get(version)}.changelog"
    return lineage_of(files.read(f"{folder.path}/{newest}")) if newest in present else {}


def _require_size(
    files: CheckpointFiles, folder: StoreFolder, name: str, zips: Mapping[str, bytes]
) -> None:
    """:class:`MissingVersion` for a file that cannot be what Spark has written."""
    size = files.size(f"{folder.path}/{name}")
    if size == 0:
        raise MissingVersion(f"{name} has no bytes")
    for sst, expected in sst_sizes(zips[name]).items() if name in zips else ():
        found = files.size(f"{folder.path}/{SST_FOLDER}/{sst}")
        if found is not None and found != expected:
            raise MissingVersion(f"{sst} has {found} bytes, and {name} says {expected}")
