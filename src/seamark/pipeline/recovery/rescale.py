"""The state of a checkpoint in another number of partitions.

The state of operators with a key is restored into a folder of its own, next to the working copy.
There it is rewritten as one more batch, and that is verified. Its files go into the store as those
of the version that the checkpoint has: what is whole depends on no version before it. So no epoch
is added, and no sink sees anything.

Tests: ``tests/pipeline/test_rescaling.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seamark._common.json_documents import decode_foreign
from seamark.capture.executors import executor_mover
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Contents, DriverMover, Mover, take_whole_state
from seamark.capture.restore import FetchAll, restore_index
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.operators import LIMIT, StatefulOperator, has_no_key
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.checkpoint_dir.state_files import closure, is_state
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, RefusedError, SeamarkError
from seamark.native.repartition import Repartition, repartition
from seamark.native.repartition_rules import codec_of, impossible, is_rocksdb
from seamark.pipeline.recovery.starting_point import LongWork
from seamark.pipeline.recovery.working_dirs import scratch_name
from seamark.spark.batch_log import (
    SHUFFLE_PARTITIONS,
    CommitIds,
    commit_text,
    log_text,
    parse_commit,
    parse_offsets,
    with_partitions,
)
from seamark.store.shared_objects import SharedObjects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoredState:
    """What a checkpoint holds of Spark's directory."""

    batch: int
    index: FileIndex
    small: Contents
    """The files that no shared object holds."""
    added: Mapping[str, StoredFile] = field(default_factory=dict)
    """Files in shared objects that were not there before."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """With what state is rewritten, and where."""

    spark: SparkSession
    place: WorkingCopy
    shared: SharedObjects
    uploads: Uploads
    long_work: LongWork
    fetch_all: FetchAll | None = None
    """How executors restore files, where they do."""

    def mover(self, copy: WorkingCopy, advance: Callable[[int], None]) -> Mover:
        """What stores the files of a folder."""
        if self.fetch_all is not None:
            return executor_mover(self.spark, copy, self.uploads)
        return DriverMover(copy, self.uploads, advance=advance)


def rescaled(
    state: StoredState,
    operators: Sequence[StatefulOperator],
    partitions: int,
    workshop: Workshop,
) -> StoredState:
    """The same state in so many partitions; ``operators`` are those that it is needed of.

    :class:`RefusedError` when it cannot be done; :class:`DamageError` when the state of the
    checkpoint is not whole. Nothing refers to what was stored until a checkpoint does.
    """
    keyed = [each for each in operators if not has_one_partition(state.small, each)]
    if keyed:
        state = _rewritten(state, keyed, partitions, workshop)
    numbers = {f"state/{each.number}/" for each in operators}
    small = {
        path: _of_partitions(path, data, partitions, numbers) for path, data in state.small.items()
    }
    return StoredState(state.batch, state.index, small, state.added)


def has_one_partition(small: Mapping[str, bytes], operator: StatefulOperator) -> bool:
    """Whether all rows of an operator are in one partition, by its schema."""
    schema = small.get(f"state/{operator.number}/0/_metadata/schema", b"")
    return operator.name == LIMIT or has_no_key(schema)


def _of_partitions(path: str, data: bytes, partitions: int, folders: Collection[str]) -> bytes:
    """A log or description with the new number; any other file as it is."""
    if path.startswith("offsets/"):
        return with_partitions(log_text(path, data), partitions).encode()
    is_description = "/_metadata/" in path and not path.endswith("/schema")
    if not is_description or not any(map(path.startswith, folders)):
        return data
    head, _, body = log_text(path, data).partition("\n")
    try:
        fields = decode_foreign(body)
        for store in fields["stateStoreInfo"]:
            store["numPartitions"] = partitions
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamageError(f"{path} does not describe an operator: {error!r}") from None
    return f"{head}\n{json.dumps(fields, separators=(',', ':'))}".encode()


def _rewritten(
    state: StoredState, keyed: Sequence[StatefulOperator], partitions: int, workshop: Workshop
) -> StoredState:
    generation = workshop.uploads.generation
    scratch = workshop.place.below(scratch_name("rescale", generation))
    numbers = {each.number for each in keyed}
    try:
        plan = _restored(state, keyed, partitions, scratch, workshop)
        with closing(_directory(scratch, workshop.spark)) as directory:
            with workshop.long_work("rewriting the state", plan.size) as advance:
                _repartition(workshop.spark, directory, plan)
                advance(plan.size)
            tree = Tree.of(directory)
            small, added, ids = _taken(tree, scratch, plan, state.batch + 1, workshop)
    finally:
        scratch.destroy()
    kept = {path: data for path, data in state.small.items() if not _is_of(path, numbers)}
    if ids is not None:
        kept |= _with_ids(state, ids)
    stored = {path: file for path, file in state.index.files.items() if not _is_of(path, numbers)}
    index = FileIndex(stored, state.index.operators)
    return StoredState(state.batch, index, kept | small, added)


def _small_text(state: StoredState, path: str) -> str:
    return log_text(path, state.small.get(path, b""))


def _is_of(path: str, operators: Collection[int]) -> bool:
    """Whether a path is a state file of one of these operators."""
    return is_state(path) and path.split("/", 2)[1] in map(str, operators)


def _restored(
    state: StoredState,
    keyed: Sequence[StatefulOperator],
    partitions: int,
    scratch: WorkingCopy,
    workshop: Workshop,
) -> Repartition:
    """Put the state into the empty folder; what is to be done to it."""
    batch = state.batch
    entry = parse_offsets(_small_text(state, f"offsets/{batch}"))
    conf = {str(name): str(value) for name, value in entry.conf.items()}
    if (problem := impossible(conf, keyed)) is not None:
        raise RefusedError(problem.why, hint=f"Set {SHUFFLE_PARTITIONS} as it was.")
    folders = tuple(f"state/{each.number}/" for each in keyed)
    logs = {"metadata", f"offsets/{batch}", f"commits/{batch}"}
    files = {
        path: file
        for path, file in state.index.files.items()
        if path in logs or path.startswith(folders)
    }
    index = FileIndex(files, state.index.operators)
    scratch.make()
    with workshop.long_work("restoring the state", index.size) as advance:
        shared = workshop.shared
        restore_index(scratch, index, state.small, shared, advance, workshop.fetch_all)
    _, ids = parse_commit(_small_text(state, f"commits/{batch}"))
    return Repartition(
        batch=batch,
        new_batch=batch + 1,
        partitions=entry.state_partitions,
        wanted=partitions,
        operators=tuple(keyed),
        size=index.size,
        format_version=1 if ids is None else 2,
        is_rocksdb=is_rocksdb(conf),
        codec=codec_of(conf),
    )


def _repartition(spark: SparkSession, directory: Directory, plan: Repartition) -> None:
    try:
        repartition(spark, directory, plan, "")
    except SeamarkError as error:
        raise RefusedError(
            f"the state cannot be rewritten in {plan.wanted} partitions: {error.what}",
            where=error.where,
            hint="Nothing was changed. Set spark.sql.shuffle.partitions to "
            f"{plan.partitions}, and the pipeline goes on as it was.",
        ) from error


def _directory(scratch: WorkingCopy, spark: SparkSession) -> Directory:
    if isinstance(scratch, LocalCopy):
        return LocalDirectory(scratch.root)
    return HadoopDirectory(scratch.root, spark)


# back into the store


def _taken(
    tree: Tree, scratch: WorkingCopy, plan: Repartition, version: int, workshop: Workshop
) -> tuple[Contents, dict[str, StoredFile], CommitIds | None]:
    """The files of the new batch as those of ``version``: small ones, stored ones, their ids."""
    _, ids = parse_commit(tree.read_text(f"commits/{plan.new_batch}") or "")
    paths = list(_paths(tree, plan, ids))
    with workshop.long_work("storing the state", tree.size_of(paths)) as advance:
        mover = workshop.mover(scratch, advance)
        small, stored = take_whole_state(mover, paths, version, scratch.root)
    return small, stored, ids


def _paths(tree: Tree, plan: Repartition, ids: CommitIds | None) -> Iterator[str]:
    version = plan.new_batch + 1
    for operator in plan.operators:
        for folder in operator._replace(partitions=plan.wanted).folders():
            chosen = None
            if ids is not None:
                store = operator.stores.index(folder.store)
                chosen = {version: ids[operator.number][folder.partition][store]}
            names = closure(tree.names_in(folder.path), version, tree.reader(folder.path), chosen)
            yield from (f"{folder.path}/{name}" for name in names)


def _with_ids(state: StoredState, ids: CommitIds) -> Contents:
    """The entry of the commit log that names the new files."""
    path = f"commits/{state.batch}"
    watermark, had = parse_commit(_small_text(state, path))
    return {path: commit_text(watermark, {**(had or {}), **ids}).encode()}
