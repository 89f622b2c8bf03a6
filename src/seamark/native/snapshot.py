"""Taking a checkpoint directory, running or stopped, into a store.

A running query adds files and its maintenance removes them at any time. Files that are there never
change, so what is read is either a whole batch or a hole, and a hole is never stored: the directory
is listed again and the newest batch taken instead.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from seamark._common.logs import logger_named
from seamark.capture.batches import (
    BatchAt,
    SkippedBatch,
    batch_at,
    newest_done,
    read_query_id,
)
from seamark.capture.checkpoint_contents import PlacedState, Sizes, place
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    OutcomeUnknownError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import SharedObject
from seamark.native.daily_reads import read_due
from seamark.native.new_checkpoint import (
    HeldFiles,
    held_by,
    native_manifest,
    oldest_first,
    read_new,
    stores_at_once,
)
from seamark.native.overlap_check import require_apart
from seamark.store import CheckpointStore

log = logger_named("seamark.spark")

LONGEST_CHAIN: Final = 10
_TRIES: Final = 10
_PAUSE: Final = 0.05

Advance = Callable[[int], None]
"""Called with the number of bytes that have been done since the last call."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A checkpoint that was taken of a directory, or that was there already."""

    checkpoint_id: int
    batch: int
    is_new: bool
    is_full: bool
    files: int
    """How many it holds itself."""
    size: int
    """Bytes as stored."""
    in_flight: bool
    """Whether the next batch was planned, so that it is replayed first after a restore."""
    seconds: float
    tries: int


def pipeline_name(query_id: str) -> str:
    """The name under which a query owns its store."""
    return f"spark-{query_id}"


def take_snapshot(
    directory: Directory,
    store: CheckpointStore,
    *,
    batch: int | None = None,
    full: bool = False,
    keep: int | None = None,
    longest_chain: int = LONGEST_CHAIN,
    sizes: Sizes | None = None,
    verify_parent: bool = False,
    read_daily: bool = False,
    advance: Advance | None = None,
) -> Snapshot:
    """Save the newest committed batch, or ``batch``, as a checkpoint; claims the store to save it.

    Incremental when the store's newest checkpoint is an earlier batch of the same history and
    whole: its state is there and has its size, and with ``verify_parent`` every byte is read.
    With ``keep`` older checkpoints are pruned, and what stays is read, unless this handle has read
    or written it before. ``read_daily`` is for a process that does this once and ends: it reads
    what no process has read for a day.
    :class:`RefusedError` when the batch asked for is not there as a whole,
    :class:`DamageError` when the newest one is not and the query does not run on.
    """
    require_apart(directory.url, store.url)
    tree = Tree.of(directory)
    query = pipeline_name(read_query_id(tree))
    _require_owned(store, query)
    taking = _SnapshotRun(
        store=store,
        query=query,
        takes_newest=batch is None,
        full=full,
        sizes=sizes or Sizes(),
        longest_chain=longest_chain,
        verify_parent=verify_parent,
        read_daily=read_daily,
        advance=advance,
    )
    previous: Tree | None = None
    for tries in range(1, _TRIES + 1):
        stands_still = previous is not None and previous.entries == tree.entries
        try:
            if batch is not None:
                snapshot = taking.run(tree, _require_committed(tree, batch), tries)
            elif previous is None or stands_still:
                snapshot = taking.run(tree, newest_done(tree), tries)
            else:
                snapshot = taking.run_one_of_the_newest(tree, tries)
        except (MissingVersion, FileNotFoundError, _Changed) as error:
            if tries == _TRIES or (stands_still and not isinstance(error, _Changed)):
                raise _error_for(error, tree, batch, runs_on=not stands_still) from None
            log.info("batch %s was not whole, looking again: %s", batch, error)
            previous = tree
            time.sleep(_PAUSE * tries)
            tree = Tree.of(directory)
            continue
        if keep is not None and snapshot.is_new:
            _retain(store, keep, read_shared=not read_daily)
        return snapshot
    raise AssertionError("not reached")


class _Changed(Exception):
    """What was read, here or in the store, belongs to more than one moment."""


def _require_owned(store: CheckpointStore, query: str) -> None:
    """Refuse the store of another query before anything is read."""
    owner = store.owner()
    if owner.pipeline not in (None, query):
        raise RefusedError(
            f"this store belongs to the pipeline {owner.pipeline!r}, not {query!r}",
            where=store.url,
            hint="Give each query a store of its own.",
        )


@dataclass(frozen=True, kw_only=True)
class _SnapshotRun:
    store: CheckpointStore
    query: str
    takes_newest: bool
    full: bool
    sizes: Sizes
    longest_chain: int
    verify_parent: bool
    read_daily: bool
    advance: Advance | None
    started: float = field(default_factory=time.perf_counter)
    read: set[SharedObject] = field(default_factory=set)
    """What was read because its turn had come."""

    def run_one_of_the_newest(self, tree: Tree, tries: int) -> Snapshot:
        """Take the newest batch, or one shortly before it that is whole and not stored yet.

        For a query that runs on: what is missing in one that stands still is damage.
        """
        newest = newest_done(tree)
        try:
            return self.run(tree, newest, tries)
        except (MissingVersion, FileNotFoundError):
            stored = self._stored()
            known = -1 if stored is None or stored.native is None else stored.batch
            for earlier in [b for b in reversed(tree.batches("commits")) if known < b < newest][:2]:
                with suppress(MissingVersion, FileNotFoundError):
                    return self.run(tree, earlier, tries)
            raise

    def run(self, tree: Tree, batch: int, tries: int) -> Snapshot:
        at = batch_at(tree, batch)
        newest = self._newest_id()
        held = self._held(tree, at)
        if held.is_same_batch and held.manifest is not None:
            return self._result(held.manifest, tries)
        if self.read_daily and self._read_due():
            held = self._held(tree, at)  # nothing is built on what turned out to be damaged
        follows = held.manifest
        full = follows is None or held.links > self.longest_chain
        is_large = stores_at_once(tree, at, held)
        if is_large:
            self._claim(newest)  # what is written next to the manifests must not be removed
        uploads = Uploads(self.store.shared_objects)
        try:
            with tree.directory.hold(oldest_first(tree, at, held)):
                new = read_new(tree, at, held, uploads, self.advance, full=full)
            if not is_large:
                self._claim(newest)  # late, so that others who read and prune need not wait
            placed = place(new.captured, self.sizes, uploads, held.index)
            _require_unchanged(tree, at)
            manifest = native_manifest(
                self.store.next_id(),
                tree,
                at,
                placed,
                parent=None if full else held.manifest,
                follows=follows,
                attempt=uuid.uuid4().hex,
                seconds=time.perf_counter() - self.started,
            )
        except BaseException:
            uploads.discard()
            raise
        saved = self._save(manifest, placed, uploads)
        return replace(self._result(saved, tries), is_new=True, files=new.count, size=placed.size)

    def _save(
        self, manifest: CheckpointManifest, placed: PlacedState, uploads: Uploads
    ) -> CheckpointManifest:
        try:
            return self.store.save_with_state(manifest, placed.chunks or None)
        except OutcomeUnknownError:
            raise  # it may be saved, and then it names what was stored for it
        except SeamarkError:
            uploads.discard()
            raise

    def _held(self, tree: Tree, at: BatchAt) -> HeldFiles:
        stored = self._stored()
        if self.takes_newest and stored is not None:
            _require_newest(tree, at.batch, stored)
        if self.full:
            return HeldFiles()
        return held_by(self.store, stored, at, verify=self.verify_parent)

    def _read_due(self) -> bool:
        """Read what has its turn since the newest checkpoint was stored; whether there was any."""
        stored = self._stored()
        if stored is None:
            return False
        due = read_due(self.store, stored.timestamp_ms / 1000, time.time(), self.read)
        self.read.update(due)
        return bool(due)

    def _stored(self) -> CheckpointManifest | None:
        try:
            return self.store.load_latest()
        except (DamageError, CheckpointNotFoundError):  # or pruned by another process just now
            return None

    def _newest_id(self) -> int:
        return max(self.store.list_ids(), default=0)

    def _claim(self, newest: int) -> None:
        """Become the writer; :class:`_Changed` when another one was faster since we looked."""
        self.store.claim(pipeline=self.query)
        if self._newest_id() != newest:
            raise _Changed("another checkpoint has become the newest one")

    def _result(self, manifest: CheckpointManifest, tries: int) -> Snapshot:
        return Snapshot(
            checkpoint_id=manifest.checkpoint_id,
            batch=manifest.batch,
            is_new=False,
            is_full=not manifest.is_incremental,
            files=0,
            size=0,
            in_flight=bool(manifest.inflight_data),
            seconds=time.perf_counter() - self.started,
            tries=tries,
        )


def _require_committed(tree: Tree, batch: int) -> int:
    commits = tree.batches("commits") or [newest_done(tree)]
    if batch not in commits:
        raise MissingVersion(f"commits/{batch} is not there", where=tree.directory.url)
    return batch


def _require_newest(tree: Tree, batch: int, stored: CheckpointManifest) -> None:
    """:class:`_Changed` when another process has stored a later batch since the listing.

    After a rollback of the directory a later batch is stored too, but it is not there any more.
    """
    if stored.native is None or stored.batch <= batch:
        return
    if tree.read_text(f"commits/{stored.batch}") is not None:
        raise _Changed(f"batch {stored.batch} was committed and stored in the meantime")


def _require_unchanged(tree: Tree, at: BatchAt) -> None:
    """Check that the directory was not rolled back and the batch run again in the meantime."""
    for path in (f"offsets/{at.batch}", f"commits/{at.batch}", "metadata"):
        text = tree.read_text(path)
        if text is not None and text.encode() != at.logs.get(path):
            raise _Changed(f"{path} was written again")


def _error_for(error: Exception, tree: Tree, asked: int | None, *, runs_on: bool) -> SeamarkError:
    what = error.what if isinstance(error, SeamarkError) else f"{error} is not there"
    if isinstance(error, SkippedBatch):
        return RefusedError(
            "no batch is in the logs together with the one before it, so nothing was stored",
            where=f"{tree.directory.url}: {what}",
            hint=error.hint,
        )
    if asked is None and runs_on and not isinstance(error, _Changed):
        return RefusedError(
            f"the query removes its state faster than it can be read: {_TRIES} tries in vain",
            where=f"{tree.directory.url}: {what}",
            hint="Nothing was stored, and the query is not touched. Raise "
            "spark.sql.streaming.minBatchesToRetain, which says how many batches Spark keeps.",
        )
    if asked is None:
        return DamageError(
            "no whole batch could be taken, so nothing was stored",
            where=f"{tree.directory.url}: {what}",
            hint=f"'seamark spark inspect {shlex.quote(tree.directory.url)}' shows what is wrong.",
        )
    commits = tree.batches("commits")
    kept = f"{commits[0]} to {commits[-1]}" if commits else "none"
    return RefusedError(
        f"batch {asked} is not there as a whole (any more), so nothing was stored",
        where=f"{tree.directory.url}: {what}",
        hint=f"Committed batches that are still listed: {kept}. Spark keeps the state of the last "
        "spark.sql.streaming.minBatchesToRetain.",
    )


def _retain(store: CheckpointStore, keep: int, *, read_shared: bool) -> None:
    """Prune. A failure is only logged: the snapshot is already saved."""
    try:
        for reason in store.prune(keep, read_shared=read_shared).left_alone:
            log.warning("%s", reason)
    except SeamarkError as error:
        log.warning("old checkpoints were not pruned: %s", error)
