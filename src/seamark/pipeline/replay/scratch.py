"""A directory of Spark as it was right before an epoch ran, with the epoch's plan in it.

The state is that of the checkpoint from which the epoch began. The plan is that of the checkpoint
that decided it: its entry of the offset log, with the watermark and the time of the batch, and
what the sources noted for it. Nothing in the directory leads anywhere else, and the query in it
has an id of its own: Spark would stop a running query of the same id.

Tests: ``tests/pipeline/test_replay.py``.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seamark._common.os_errors import translate_os_errors
from seamark.capture.checkpoint_contents import Chain
from seamark.capture.file_index import FileIndex
from seamark.capture.gap_lines import apply_gaps
from seamark.capture.plans import install_plan, read_plan
from seamark.capture.restore import FetchAll, files_of, restore_index
from seamark.capture.unread_entries import forget_unread, require_declared_batch
from seamark.checkpoint_dir.places.hadoop_copy import open_working_copy
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.native.restore import new_metadata, restore_checkpoint
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.running_epoch import fingerprint
from seamark.pipeline.recovery.working_dirs import reorder_sources, shared_place
from seamark.pipeline.replay.recorded_epochs import EpochToReplay
from seamark.spark.batch_log import OffsetLogEntry, Plan, parse_commit, parse_offsets
from seamark.spark.session import is_local
from seamark.store import CheckpointStore
from seamark.store.index_parts import check_path
from seamark.store.inspection import pruned_or

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

_LOGS = ("offsets/", "commits/", "sources/")


@dataclass(frozen=True)
class RecordedPlan:
    """What an epoch read and with which settings, as the checkpoint that decided it says."""

    plan: Plan
    entry: OffsetLogEntry
    chain: Chain
    """The files of the checkpoint."""
    has_ids: bool
    """Whether its state files have ids (checkpoint format 2)."""


@contextmanager
def scratch_folder(
    spark: SparkSession, working_copy: str | os.PathLike[str] | None
) -> Iterator[WorkingCopy]:
    """A folder for one replay, removed at the end whatever happens.

    In local mode it is a temporary folder. Elsewhere all executors have to reach it, so it is in
    the place that the pipeline's working copies have, under a name that no run looks at.
    """
    if is_local(spark):
        where = tempfile.gettempdir()
        with translate_os_errors("making a folder in", where):
            place: WorkingCopy = LocalCopy(tempfile.mkdtemp(prefix="seamark-replay-"))
        folder = place
    else:
        place = open_working_copy(shared_place(working_copy), spark)
        folder = place.below(f"replay-{uuid.uuid4().hex[:12]}")
    try:
        yield folder
    finally:
        try:
            folder.destroy()
        finally:
            place.close()


def lines_of_folders(decided: CheckpointManifest, identity: PipelineIdentity) -> list[int]:
    """By the number of each folder of a source's log: its first line of the offset log."""
    leaves = tuple(decided.leaves or identity.leaves)
    then = (
        identity
        if leaves == identity.leaves
        else replace(identity, leaves=leaves, lines_of_folders=())
    )
    return then.first_lines


def recorded_plan(
    store: CheckpointStore,
    decided: CheckpointManifest,
    folder: WorkingCopy,
    first_lines: Sequence[int],
) -> RecordedPlan:
    """The plan of an epoch; ``folder`` is empty and gets Spark's logs, to be read from there.

    :class:`DamageError` unless it is, by its fingerprint, the one that the epoch ran on;
    :class:`CheckpointNotFoundError` when the checkpoint is pruned meanwhile.
    """
    chain = Chain.load(store, decided)
    if chain.index is not None:
        logs = {path: file for path, file in chain.index.files.items() if path.startswith(_LOGS)}
        try:
            restore_index(folder, FileIndex(logs), chain.small, store.shared_objects)
        except DamageError as error:
            raise pruned_or(store, decided.checkpoint_id, error) from None
    else:
        for _ in chain.read(store):
            pass  # to verify it and to have its logs
        for path, data in chain.logs.items():
            if path.startswith(_LOGS):
                folder.write(check_path(path), data)
    plan = read_plan(folder, decided.batch, first_lines)
    if plan is None:
        raise DamageError(
            f"checkpoint {decided.checkpoint_id} has no plan of its batch {decided.batch}",
            where=store.url,
        )
    entry = parse_offsets(plan.offsets)
    planned = fingerprint(decided.timeline or "", entry.lines, plan.sources)
    if decided.fingerprint is not None and planned != decided.fingerprint:
        raise DamageError(
            f"the plan in checkpoint {decided.checkpoint_id} is not the one that epoch "
            f"{decided.epoch} ran on",
            where=store.url,
            hint="Its fingerprint is another one. 'seamark verify --read-data' looks for damage.",
        )
    commit = folder.read_text(f"commits/{decided.batch}")
    has_ids = commit is not None and parse_commit(commit)[1] is not None
    return RecordedPlan(plan, entry, chain, has_ids)


def recorded_file(store: CheckpointStore, chain: Chain, path: str) -> bytes | None:
    """A file of a checkpoint with an index, verified; None when that is pruned meanwhile."""
    assert chain.index is not None
    file = chain.index.files[path]
    if file.shared is None:
        return chain.small[path]
    holder = file.shared, {path: file}
    try:
        pieces = (found for _, _, found in files_of(holder, store.shared_objects))
        return b"".join(bytes(piece) for found in pieces for piece in found)
    except DamageError as error:
        why = pruned_or(store, chain.manifests[-1].checkpoint_id, error)
        if isinstance(why, DamageError):
            raise
        return None


def rebuild(
    store: CheckpointStore,
    found: EpochToReplay,
    recorded: RecordedPlan,
    copy: WorkingCopy,
    identity: PipelineIdentity,
    fetch_all: FetchAll | None = None,
) -> None:
    """Make an empty folder what Spark's directory was right before the epoch ran.

    Each file is verified. :class:`DamageError` when the state of the parent is not whole, or the
    plan is not; :class:`RefusedError` when the epoch has read what is not declared any more.
    """
    decided, parent = found.decided, found.parent
    as_decided = replace(identity, leaves=tuple(decided.leaves or identity.leaves))
    inputs = identity.inputs_of(as_decided.leaves, lines_of_folders(decided, identity))
    if parent is None:
        copy.make()
    else:
        restore_checkpoint(store, parent, copy, fetch_all=fetch_all)
        reorder_sources(copy, parent, as_decided)
        forget_unread(copy, parent.batch, inputs)
    copy.write("metadata", new_metadata())
    install_plan(copy, decided.batch, recorded.plan, inputs)
    reorder_sources(copy, decided, identity)
    if parent is not None:
        apply_gaps(copy, parent.gaps, identity.leaves, parent.batch)
    require_declared_batch(copy, decided.batch, identity.inputs)
