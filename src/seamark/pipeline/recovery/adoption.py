"""Going on from the checkpoint directory of a query that was not a pipeline."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass

from seamark.checkpoint_dir.closures import ids_by_version, needs_of
from seamark.checkpoint_dir.state_files import parse_state_file
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import RefusedError
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.spark.batch_log import OffsetLogEntry, parse_offsets, require_unnamed


@dataclass(frozen=True)
class AdoptedQuery:
    """Where the adopted query stood."""

    next_batch: int
    digests: dict[str, bytes]
    text: str


def adopt_checkpoint(path: str, mine: WorkingCopy, identity: PipelineIdentity) -> AdoptedQuery:
    """Copy an existing checkpoint directory to be this pipeline's first working copy.

    :class:`RefusedError` says why when it does not fit. The directory itself is not changed.
    """
    old = WorkingCopy(path.removeprefix("file://").removeprefix("file:"))
    batch = _last_committed(old)
    entry = _entry(old, batch)
    if len(entry.lines) != len(identity.leaves):
        raise _refused(
            old,
            f"its query has {len(entry.lines)} sources, and this pipeline reads "
            f"{len(identity.leaves)} (each output counts its own)",
        )
    partitions = identity.structure["state_partitions"]
    if partitions and entry.state_partitions != partitions:
        raise _refused(
            old,
            f"its state has {entry.state_partitions} partitions, and this session would make "
            f"{partitions}: set spark.sql.shuffle.partitions to {entry.state_partitions}",
        )
    has_state = bool(old.operators())
    if has_state != bool(identity.structure["operators"]):
        raise _refused(old, f"its query has {'' if has_state else 'no '}stateful operators")
    _require_state(old, batch)
    shutil.copytree(old.root, mine.root, ignore=shutil.ignore_patterns(".*"))
    mine.forget_after(batch)
    mine.rewrite_root()
    return AdoptedQuery(
        batch + 1,
        _digests(mine, batch),
        f"adopted from {old.root} after batch {batch}",
    )


def _last_committed(old: WorkingCopy) -> int:
    commits = old.batches("commits")
    if not commits or old.read_text("metadata") is None:
        raise _refused(old, "it is no checkpoint directory of a query that has committed a batch")
    return commits[-1]


def _entry(old: WorkingCopy, batch: int) -> OffsetLogEntry:
    text = old.read_text(f"offsets/{batch}")
    if text is None:
        raise _refused(old, f"offsets/{batch} is missing")
    return require_unnamed(parse_offsets(text))


def _require_state(old: WorkingCopy, batch: int) -> None:
    for need in needs_of(old, batch):
        if need.problem is not None:
            raise _refused(old, f"state in {need.folder.path}: {need.problem}")


def _digests(mine: WorkingCopy, batch: int) -> dict[str, bytes]:
    """Hashes of all state files, so that later checkpoints know which id each version had."""
    known = {
        uid
        for by_operator in ids_by_version(mine, batch).values()
        for partitions in by_operator.values()
        for stores in partitions
        for uid in stores
    }
    digests = {}
    for path in mine.files_below("state"):
        named = parse_state_file(path.rsplit("/", 1)[-1])
        if known and named is not None and named.uid not in known:
            continue  # of a try that did not count
        digests[path] = hashlib.sha256(mine.read(path)).digest()
    return digests


def _refused(old: WorkingCopy, why: str) -> RefusedError:
    return RefusedError(
        f"{os.fspath(old.root)} cannot be adopted: {why}",
        hint="It was not changed. Without adopt= the pipeline starts over.",
    )
