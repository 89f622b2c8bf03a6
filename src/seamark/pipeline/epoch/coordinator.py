"""The epoch protocol: what happens between Spark's plan of a batch and Spark's commit of it.

Spark writes ``offsets/N``, calls :meth:`Coordinator.run_batch`, then writes ``commits/N``. Saving
the manifest is the decision. Before it the epoch never happened, after it the epoch is finished,
here or by the next start.

Tests: ``tests/pipeline/test_crash_matrix.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from seamark._common.logs import logger_named
from seamark._common.retry import retry_unavailable
from seamark.capture.capture import Capture
from seamark.capture.checkpoint_contents import PlacedState, place
from seamark.capture.epoch_files import Captured
from seamark.capture.unread_entries import plan_again
from seamark.capture.uploads import Uploads
from seamark.errors import (
    FencedError,
    LineageError,
    OutcomeUnknownError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.epoch.epoch_inputs import epoch_inputs
from seamark.pipeline.epoch.epoch_manifest import (
    check_size,
    draft_manifest,
    same_epoch,
    with_sink_statuses,
)
from seamark.pipeline.epoch.epoch_plan import (
    functions_in,
    is_replay,
    planned_epoch,
    require_files,
    shown_already,
    store_plan,
)
from seamark.pipeline.epoch.output_digests import rows_by_sink
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks, writing
from seamark.pipeline.epoch.read_points import missing_read_points
from seamark.pipeline.epoch.running_epoch import EpochHistory, Interrupted, RunningEpoch
from seamark.pipeline.epoch.save_with_retry import fencing_behind, save_with_retry
from seamark.pipeline.telemetry.checkpoint_metrics import NewestCheckpoint, stored_files
from seamark.pipeline.telemetry.reports import EpochStats
from seamark.pipeline.telemetry.run_telemetry import RunTelemetry
from seamark.reports.checkpoint_files import IndexedFiles
from seamark.sinks.contract import Committable
from seamark.spark.query import INTERRUPTED_BY_STOP, RunningQuery
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger_named("seamark.pipeline")

_QUERY_PATIENCE: Final = 120.0
_LOOK: Final = 0.05
_STOP_PATIENCE: Final = 10.0


class Coordinator:
    """Runs the epochs of one query, one at a time, on the thread that Spark calls."""

    def __init__(
        self,
        declared: DeclaredPipeline,
        store: CheckpointStore,
        capture: Capture,
        sinks: PipelineSinks,
        *,
        history: EpochHistory,
        telemetry: RunTelemetry,
        uploads: Uploads,
    ) -> None:
        self.declared = declared
        self._identity = declared.identity
        self._settings = declared.settings
        self._store = store
        self._capture = capture
        self._uploads = uploads
        self.copy = capture.copy
        """Where Spark keeps its own files of the query."""
        self._sinks = sinks
        self.history = history
        self.telemetry = telemetry
        self._query: RunningQuery | None = None
        self._query_known = threading.Event()
        self.between_epochs = threading.Lock()
        """Held while an epoch runs."""
        self.stopping = threading.Event()
        self._files: IndexedFiles | None = None
        self.failure: BaseException | None = None
        self.interrupted: Interrupted | None = None

    def attach(self, query: RunningQuery | None) -> None:
        """Set the query that the batches belong to; with None they wait until it is known."""
        self._query = query
        if query is None:
            self._query_known.clear()
            self.history.planned_before = max(self.copy.batches("offsets"), default=-1)
        else:
            self._query_known.set()

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Run one epoch, from Spark's plan to the recorded commit. Spark calls this."""
        self._enter()
        self.telemetry.begin_epoch(batch_id + 1)
        try:
            self._run(batch, batch_id)
        except Interrupted as interruption:
            self.interrupted = interruption
            raise
        except BaseException as error:
            self.failure = self.cause_of(error)
            self.telemetry.epoch_failed(self.failure)
            if isinstance(error, Exception):
                raise
            # py4j answers Spark only after an Exception; after anything else Spark waits for ever
            raise SeamarkError(f"the epoch was cut off by {type(error).__name__}") from error
        finally:
            self.telemetry.end_epoch()
            self.between_epochs.release()

    def plan_again(self, batch: int) -> None:
        """Have the query, once it is started again, run a batch on the plan made before."""
        self.telemetry.restarted()
        plan_again(self.copy, batch, self.history.plans[batch], self._identity.inputs)

    def abandon(self) -> None:
        """End as a process does that is killed: nothing is closed."""
        self._capture.abandon()

    def spark_has_committed(self) -> bool:
        """Whether Spark has noted the batch of the newest decided epoch as committed."""
        newest = self.history.newest
        return newest is None or self.copy.size(f"commits/{newest.epoch - 1}") is not None

    def cause_of(self, error: BaseException) -> BaseException:
        """The error, or the :class:`FencedError` that explains it."""
        return fencing_behind(error, self._store)

    def _enter(self) -> None:
        """Start an epoch, unless the run has to stop: its stop may hold the lock."""
        while not self.stopping.is_set():
            if self.between_epochs.acquire(timeout=_LOOK):
                if not self.stopping.is_set():
                    return
                self.between_epochs.release()
        if self._query is not None:
            self._query.wait_until_stopped(_STOP_PATIENCE)
        self.interrupted = Interrupted(INTERRUPTED_BY_STOP)
        raise self.interrupted

    def _run(self, batch: DataFrame, batch_id: int) -> None:
        epoch = self._begin(batch_id)
        with self._step(epoch, Step.BEGIN):
            self._running().require_declared_plan(epoch.number, epoch.entry.watermark_ms)
            decided = is_replay(epoch, self.history, self.copy)
            require_files(batch.sparkSession, self._running(), epoch, self.history)
            if decided:
                self._replay(batch, epoch)
                return
            already = shown_already(epoch, self.history, self._sinks.outputs)
            if functions := functions_in(self._sinks.outputs, self._identity):
                patience = self._settings.store_timeout
                store_plan(self._store, epoch, self.history, functions, patience)
        try:
            with self._step(epoch, Step.WRITE), self._writing():
                apart = self._running().mixes_state
                self._sinks.stage(batch, epoch, already, self._check_claim, apart=apart)
            with self._step(epoch, Step.PREPARE):
                committables = self._sinks.prepare(epoch, already)
            with self._step(epoch, Step.CAPTURE):
                captured, placed, manifest = self._take(epoch, committables, already)
        except Exception:
            self._capture.undone()
            self._sinks.abort(epoch.attempt)
            raise
        with self._step(epoch, Step.SAVE):
            saved = self._save(epoch, manifest, placed)
        self._decided(epoch, saved, captured, placed)
        self._check_claim()
        with self._step(epoch, Step.COMMIT):
            statuses = self._sinks.commit(committables)
        with self._step(epoch, Step.RECORD):
            shown = {sink for sink, status in statuses.items() if status.is_committed} | already
            points = missing_read_points(self._sinks.outputs, saved, shown, epoch.timeline)
            self._record(with_sink_statuses(saved, statuses, epoch.phases, points))
            self.telemetry.progress.note(epoch.number, epoch.positions, self._identity.config_hash)
        failed = {sink: s.message for sink, s in statuses.items() if not s.is_committed}
        if failed:
            raise SeamarkError(
                f"epoch {epoch.number} is decided, and not every sink has committed it",
                where="; ".join(f"sink {sink}: {why}" for sink, why in failed.items()),
                hint="Nothing is lost: the next start finishes it from the checkpoint.",
            )
        with self._step(epoch, Step.RETAIN):
            self._retain(saved)
        self._finished(epoch, saved)

    def _step(self, epoch: RunningEpoch, step: Step) -> AbstractContextManager[None]:
        return epoch.step(step, self._settings.on_step, self.telemetry.step)

    # 1 begin

    def _begin(self, batch_id: int) -> RunningEpoch:
        if not self._query_known.wait(_QUERY_PATIENCE):
            raise SeamarkError("Spark runs a batch of a query that was never started")
        latest = self._running().latest_offsets() if self._identity.addresses else []
        epoch = planned_epoch(self.copy, self._identity, self.history, batch_id, latest)
        self.telemetry.epoch_planned(epoch.unread)
        return epoch

    def _replay(self, batch: DataFrame, epoch: RunningEpoch) -> None:
        """Spark runs a decided epoch again: its rows are read and dropped, its state must agree."""
        newest = self.history.newest
        if newest is None or newest.fingerprint != epoch.fingerprint:
            raise LineageError(
                f"Spark runs epoch {epoch.number} again, on other rows than before",
                where=self.copy.root,
                hint="Stop, remove the working copy, and start again.",
            )
        batch.write.format("noop").mode("overwrite").save()
        if changed := self._capture.differences(epoch.batch):
            raise RefusedError(
                f"epoch {epoch.number} was run again and its state came out different",
                where=changed,
                hint="Something in the plan is not deterministic. Start again: the working copy is "
                "rebuilt from the checkpoint.",
            )
        log.info("epoch %d was run again and agrees with its checkpoint", epoch.number)

    # 2 write

    def _check_claim(self) -> None:
        retry_unavailable(
            self._store.check_claim, self._settings.store_timeout, "reading the owner"
        )

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self._running(), self._settings.step_timeouts.get(Step.WRITE))

    # 4 capture

    def _take(
        self, epoch: RunningEpoch, committables: Mapping[str, Committable], already: set[str]
    ) -> tuple[Captured, PlacedState, CheckpointManifest]:
        history, query = self.history, self._running()
        commit, next_watermark, ids = query.next_commit()
        full = history.newest is None or history.links + 1 >= self._settings.full_every
        captured = self._capture.take(
            epoch.batch, commit, full=full, state_ids=ids, partitions=query.state_partitions
        )
        check_size(captured.size, self._settings.size_cap)
        placed = place(captured, self._settings.sizes, self._uploads, self._capture.index)
        self._capture.check_unchanged(placed.files)
        manifest = draft_manifest(
            epoch,
            history,
            captured,
            placed,
            committables=committables,
            already=already,
            digests=self._sinks.digests,
            inputs=epoch_inputs(epoch, self.history.newest),
            next_watermark=next_watermark,
            reached=query.watermarks,
            times=self.telemetry.times_of(epoch.unread),
        )
        return captured, placed, manifest

    # 5 to 8

    def _save(
        self, epoch: RunningEpoch, manifest: CheckpointManifest, placed: PlacedState
    ) -> CheckpointManifest:
        try:
            return save_with_retry(
                self._store, manifest, placed.chunks, self._settings.store_timeout
            )
        except OutcomeUnknownError:
            raise  # it may have been decided: nothing may be undone
        except Exception:
            self._capture.undone()
            self._sinks.abort(epoch.attempt)
            raise

    def _decided(
        self,
        epoch: RunningEpoch,
        saved: CheckpointManifest,
        captured: Captured,
        placed: PlacedState,
    ) -> None:
        history = self.history
        history.links = 0 if captured.is_full else history.links + 1
        history.full_bytes = placed.restore_size
        history.newest, history.next_id = saved, saved.checkpoint_id + 1
        history.plans.pop(epoch.batch, None)
        history.late_read_points.clear()  # the manifest has them
        self._capture.saved(captured, placed.files)
        self._files = stored_files(self._capture.index, captured, placed)
        self._tell_checkpoint()

    def _tell_checkpoint(self) -> None:
        if (newest := self.history.newest) is not None:
            links, files = self.history.links, self._files
            checkpoint = NewestCheckpoint(manifest=newest, links=links, files=files)
            self.telemetry.checkpoint_is(checkpoint)

    def finish(self) -> None:
        """Let the newest checkpoint refer to the snapshots of Spark's that no epoch came after.

        The run has ended well. Otherwise a run of a few epochs would never get to a new base: its
        successor begins without these snapshots. A failure costs nothing else.
        """
        newest = self.history.newest
        if self.failure is not None or newest is None:
            return
        try:
            moved = self._capture.moved(self._settings.finish_timeout)
            if moved is None:
                return
            placed = place(moved, self._settings.sizes, self._uploads, self._capture.index)
            again = same_epoch(newest, self.history.next_id, placed)
            saved = save_with_retry(self._store, again, placed.chunks, self._settings.store_timeout)
        except OutcomeUnknownError as error:
            log.warning("%s", error)
        except (SeamarkError, OSError) as error:
            self._capture.undone()
            log.warning("the checkpoint does not refer to Spark's newest snapshots: %s", error)
        else:
            self.history.newest, self.history.next_id = saved, saved.checkpoint_id + 1
            self._capture.saved(moved, placed.files)
            self._files = stored_files(self._capture.index, moved, placed)
            self.history.links += 1
            self._tell_checkpoint()

    def _record(self, manifest: CheckpointManifest) -> None:
        try:
            self.history.newest = self._store.update_manifest(manifest)
        except FencedError:
            raise
        except SeamarkError as error:
            # the sinks know what they show; the next start asks them and records it
            log.warning("the statuses of epoch %d were not recorded: %s", manifest.epoch, error)
            self.history.newest = manifest
            if manifest.read_points is not None:
                self.history.late_read_points[manifest.epoch] = manifest.read_points
        self._tell_checkpoint()

    def _retain(self, saved: CheckpointManifest) -> None:
        if saved.is_incremental:
            return  # nothing can be removed before a new chain has started
        # a scrub reads shared objects between epochs, so that no epoch waits for it
        read_shared = self._settings.scrub_every is None
        try:
            removed = self._store.prune(self._settings.keep, read_shared=read_shared)
            for reason in removed.left_alone:
                log.warning("%s", reason)
        except FencedError:
            raise
        except SeamarkError as error:
            log.warning("old checkpoints were not pruned: %s", error)

    def _finished(self, epoch: RunningEpoch, saved: CheckpointManifest) -> None:
        stats = EpochStats(
            epoch=epoch.number,
            checkpoint_id=saved.checkpoint_id,
            rows_per_sink=rows_by_sink(saved, self._sinks.names),
            seconds=time.perf_counter() - epoch.started,
            phases=dict(epoch.phases),
            new_bytes=saved.size_bytes + saved.added_bytes,
            full_bytes=self.history.full_bytes,
            watermark=saved.watermark,
            sinks=self._sinks.names,
            positions=epoch.positions,
        )
        try:
            self.telemetry.epoch_done(stats)
        except Exception:
            # the epoch is done; a failure to report it changes nothing
            log.exception("the figures of epoch %d could not be shown", epoch.number)

    def _running(self) -> RunningQuery:
        if self._query is None:
            raise SeamarkError("there is no query")
        return self._query
