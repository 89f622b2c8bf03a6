"""What the state of one batch consists of, over a whole checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from seamark.errors import DamageError
from seamark.spark.checkpoint_files import CheckpointFiles, StatefulOperator, StoreFolder
from seamark.spark.logs import CommitIds, parse_commit, parse_offsets
from seamark.spark.state_files import closure

_AT_A_TIME: Final = 8
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


def stores_of(
    files: CheckpointFiles, ids: CommitIds | None = None, pinned: int = 0
) -> Iterator[tuple[StatefulOperator, StoreFolder]]:
    """Every state store that there must be, when the batch ran with ``pinned`` partitions.

    Spark notes the number of shuffle partitions for each operator, and some have one partition
    only: those have one folder. What an operator's own note says is not changed by a repartition.
    """
    for described in files.operators():
        operator = described._replace(partitions=pinned or described.partitions)
        partitions = len(ids[operator.number]) if ids and operator.number in ids else None
        if partitions is None:
            is_single = not any(
                files.has_folder(f"state/{operator.number}/{number}")
                for number in range(1, operator.partitions)
            )
            partitions = 1 if is_single else operator.partitions
        really = operator._replace(partitions=partitions)
        for folder in really.folders():
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
    try:
        names = closure(
            files.names_in(folder.path),
            version,
            lambda name: files.read(f"{folder.path}/{name}"),
            chosen,
        )
    except FileNotFoundError as error:
        return Need(operator, folder, (), f"{error.filename or error} vanished")
    except DamageError as error:
        return Need(operator, folder, (), error.what)
    return Need(operator, folder, tuple(f"{folder.path}/{name}" for name in names))
