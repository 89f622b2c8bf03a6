"""The epoch protocol: what happens between Spark's plan of a batch and Spark's commit of it.

Spark writes ``offsets/N``, calls :meth:`Coordinator.run_batch`, then writes ``commits/N``. Saving
the manifest is the decision. Before it the epoch never happened, after it the epoch is finished,
here or by the next start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from seamark.errors import (
    FencedError,
    LineageError,
    OutcomeUnknownError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest
from seamark.pipeline.decision import decide
from seamark.pipeline.draft import Identity, committed, draft
from seamark.pipeline.epoch import EpochRun, new_attempt
from seamark.pipeline.figures import EpochFigures
from seamark.pipeline.patience import patiently
from seamark.pipeline.placement import Placed, drop_unreferenced, place
from seamark.pipeline.settings import Settings, Step
from seamark.pipeline.sink_crew import SinkCrew, StepTimeout
from seamark.sinks.contract import Committable, Plan
from seamark.spark.capture import Capture, Captured
from seamark.spark.logs import parse_offsets
from seamark.spark.planned_files import missing_files
from seamark.spark.query import INTERRUPTED_BY_STOP, RunningQuery
from seamark.spark.restore import read_plan
from seamark.spark.versions import IGNORE_MISSING_FILES
from seamark.spark.working_copy import WorkingCopy
from seamark.state import StateStore
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("seamark.pipeline")

_QUERY_PATIENCE: Final = 120.0
_WARN_AT: Final = 0.8
_LOOK: Final = 0.05
_STOP_PATIENCE: Final = 10.0


class Interrupted(Exception):
    """The query is to stop before this batch; not a failure."""


class PlanDiffers(Interrupted):
    """Spark planned other rows for a batch than a sink shows for it already."""

    def __init__(self, batch: int) -> None:
        super().__init__(f"batch {batch} has to run on the rows that it was planned for before")
        self.batch = batch


@dataclass
class Lineage:
    """Where the history of epochs stands."""

    timeline: str
    generation: int
    next_id: int
    newest: CheckpointManifest | None = None
    first_batch: int = 0
    """The batch that an empty history begins with; more than 0 for an adopted query."""
    links: int = 0
    """How many checkpoints the newest one builds on."""
    full_bytes: int = 0
    plans: dict[int, Plan] = field(default_factory=dict)
    """Batches that have to run on a plan that was made before."""
    ahead: dict[str, int] = field(default_factory=dict)
    """Sinks that show later epochs than the newest checkpoint, and up to which."""


class Coordinator:
    """Runs the epochs of one query, one at a time, on the thread that Spark calls."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        store: CheckpointStore,
        states: StateStore,
        copy: WorkingCopy,
        capture: Capture,
        crew: SinkCrew,
        lineage: Lineage,
        on_epoch: Callable[[EpochFigures], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._identity = identity
        self._first_lines = identity.first_lines
        self._settings = settings
        self._store = store
        self._states = states
        self._copy = copy
        self._capture = capture
        self._crew = crew
        self.lineage = lineage
        self._partitioned = True  # an earlier run may have left some
        self._on_epoch = on_epoch
        self._on_failure = on_failure
        self._query: RunningQuery | None = None
        self._query_known = threading.Event()
        self.between_epochs = threading.Lock()
        """Held while an epoch runs."""
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.interrupted: Interrupted | None = None

    def attach(self, query: RunningQuery | None) -> None:
        """Tell which query the batches belong to; with None they wait until it is known."""
        self._query = query
        if query is None:
            self._query_known.clear()
        else:
            self._query_known.set()

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """One epoch, from Spark's plan to the recorded commit. What Spark calls."""
        self._enter()
        try:
            self._run(batch, batch_id)
        except Interrupted as interruption:
            self.interrupted = interruption
            raise
        except BaseException as error:
            self.failure = self.cause_of(error)
            self._on_failure()
            if isinstance(error, Exception):
                raise
            # py4j answers Spark only after an Exception; after anything else Spark waits for ever
            raise SeamarkError(f"the epoch was cut off by {type(error).__name__}") from error
        finally:
            self.between_epochs.release()

    def cause_of(self, error: BaseException) -> BaseException:
        """Being fenced, when that is why: whoever takes over moves the working copy away."""
        if isinstance(error, Exception) and not isinstance(error, FencedError):
            try:
                self._store.check_claim()
            except FencedError as fenced:
                fenced.__cause__ = error
                return fenced
            except SeamarkError:
                pass  # the store does not tell, so the error speaks for itself
        return error

    def _enter(self) -> None:
        """Begin an epoch, unless the run is to stop: whoever stops it may be waiting for us."""
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
        on_step = self._settings.on_step
        epoch = self._begin(batch_id)
        with epoch.step(Step.BEGIN, on_step):
            if self._is_replay(epoch):
                self._replay(batch, epoch)
                return
            self._require_files(batch, epoch)
            already = self._shown_already(epoch)
        try:
            with epoch.step(Step.WRITE, on_step), self._time_limit():
                self._crew.stage(batch, epoch, already)
            with epoch.step(Step.PREPARE, on_step):
                committables = self._crew.prepare(already)
            with epoch.step(Step.CAPTURE, on_step):
                captured, placed, manifest = self._take(epoch, committables, already)
            with epoch.step(Step.SAVE, on_step):
                saved = decide(self._store, manifest, placed.chunks, self._settings.store_timeout)
        except OutcomeUnknownError:
            raise  # it may have been decided: nothing may be undone
        except Exception:
            self._crew.abort(epoch.attempt)
            raise
        self._decided(epoch, saved, captured)
        patiently(self._store.check_claim, self._settings.store_timeout, "reading the owner")
        with epoch.step(Step.COMMIT, on_step):
            statuses = self._crew.commit(committables)
        with epoch.step(Step.RECORD, on_step):
            self._record(committed(saved, statuses, epoch.phases))
        failed = {sink: s.message for sink, s in statuses.items() if not s.is_committed}
        if failed:
            raise SeamarkError(
                f"epoch {epoch.number} is decided, and not every sink has committed it",
                where="; ".join(f"sink {sink}: {why}" for sink, why in failed.items()),
                hint="Nothing is lost: the next start finishes it from the checkpoint.",
            )
        with epoch.step(Step.RETAIN, on_step):
            self._retain(saved)
        self._finished(epoch, saved, placed)

    # 1 begin

    def _begin(self, batch_id: int) -> EpochRun:
        if not self._query_known.wait(_QUERY_PATIENCE):
            raise SeamarkError("Spark runs a batch, and the query was never started")
        plan = read_plan(self._copy, batch_id, self._first_lines)
        if plan is None:
            raise SeamarkError(
                f"the plan of batch {batch_id} is not in the working copy",
                where=self._copy.root,
                hint="Was the directory removed or replaced while the query was running?",
            )
        entry = parse_offsets(plan.offsets)
        leaves = self._identity.leaves
        if len(entry.lines) != len(leaves):
            raise SeamarkError(
                f"Spark planned {len(entry.lines)} sources, and the pipeline has {len(leaves)}",
                where=self._copy.path(f"offsets/{batch_id}"),
            )
        line = self.lineage
        wanted = line.plans.get(batch_id)
        if wanted is not None and parse_offsets(wanted.offsets).lines != entry.lines:
            raise PlanDiffers(batch_id)
        return EpochRun(
            self._identity.name,
            line.timeline,
            batch_id,
            entry,
            plan,
            new_attempt(line.generation),
        )

    def _is_replay(self, epoch: EpochRun) -> bool:
        newest = self.lineage.newest
        expected = self.lineage.first_batch + 1 if newest is None else newest.epoch + 1
        if epoch.number == expected:
            return False
        if newest is not None and epoch.number == newest.epoch:
            return True
        raise LineageError(
            f"Spark runs epoch {epoch.number}, and the next one of this pipeline is {expected}",
            where=self._copy.root,
            hint="The working copy belongs to another history. Stop, remove it, and start again.",
        )

    def _replay(self, batch: DataFrame, epoch: EpochRun) -> None:
        """Spark runs a decided epoch again: its rows are read and dropped, its state must agree."""
        newest = self.lineage.newest
        if newest is None or newest.extra.get("fingerprint") != epoch.fingerprint:
            raise LineageError(
                f"Spark runs epoch {epoch.number} again, on other rows than before",
                where=self._copy.root,
                hint="Stop, remove the working copy, and start again.",
            )
        batch.write.format("noop").mode("overwrite").save()
        commit, _, ids = self._running().next_commit()
        again = self._capture.take(epoch.batch, commit, full=True, state_ids=ids)
        if changed := self._capture.differences(again):
            raise RefusedError(
                f"epoch {epoch.number} was run again and its state came out different",
                where=changed,
                hint="Something in the plan is not deterministic. Start again: the working copy is "
                "rebuilt from the checkpoint.",
            )
        log.info("epoch %d was run again and agrees with its checkpoint", epoch.number)

    def _require_files(self, batch: DataFrame, epoch: EpochRun) -> None:
        if batch.sparkSession.conf.get(IGNORE_MISSING_FILES) == "true":
            return
        if gone := missing_files(epoch.plan):
            raise SeamarkError(
                f"a file that epoch {epoch.number} was planned to read is gone",
                where=", ".join(gone[:3]) + (f" and {len(gone) - 3} more" if gone[3:] else ""),
                hint="Bring it back: the epoch runs again on exactly the rows that it was planned "
                "for. Spark itself would take it for a file without rows.",
            )

    def _shown_already(self, epoch: EpochRun) -> set[str]:
        """Sinks that show this epoch: their checkpoint was lost, and the epoch is run again."""
        shown: set[str] = set()
        for output in self._crew.outputs:
            if epoch.number > self.lineage.ahead.get(output.name, 0):
                continue
            receipt = output.sink.committed(epoch.timeline, epoch.number)
            if receipt is None:
                continue
            if receipt.fingerprint != epoch.fingerprint:
                raise LineageError(
                    f"sink {output.name!r} shows epoch {epoch.number} with other rows",
                    where=f"It was written by attempt {receipt.attempt} of timeline "
                    f"{receipt.timeline}, and what Spark has planned now is something else.",
                    hint="Take the epoch back from the sink (unpublish_after), or restore the "
                    "checkpoint that belongs to it.",
                )
            shown.add(output.name)
        return shown

    # 2 write

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Cancel Spark's jobs when staging takes longer than it may."""
        limit = self._settings.step_timeouts.get(Step.WRITE)
        if limit is None:
            yield
            return
        timer = threading.Timer(limit, self._running().cancel_jobs)
        timer.start()
        try:
            yield
        except Exception as error:
            if timer.is_alive():
                raise
            raise StepTimeout(
                f"the step 'write' did not finish in {limit:g} s",
                hint="The epoch is run again by the next start. step_timeouts sets the limit.",
            ) from error
        finally:
            timer.cancel()

    # 4 capture

    def _take(
        self, epoch: EpochRun, committables: Mapping[str, Committable], already: set[str]
    ) -> tuple[Captured, Placed, CheckpointManifest]:
        line, query = self.lineage, self._running()
        commit, next_watermark, ids = query.next_commit()
        full = line.newest is None or line.links + 1 >= self._settings.full_every
        captured = self._capture.take(epoch.batch, commit, full=full, state_ids=ids)
        self._check_size(captured)
        placed = place(captured, self._settings.sizes, self._states, epoch.number)
        self._capture.packed(placed.digests)
        manifest = draft(
            self._identity,
            epoch,
            line.next_id,
            placed,
            parent=line.newest,
            is_full=full,
            versions=captured.versions,
            next_watermark=next_watermark,
            reached=query.watermarks() if self._identity.watermarks else {},
            committables=committables,
            already=already,
        )
        return captured, placed, manifest

    def _check_size(self, captured: Captured) -> None:
        cap = self._settings.size_cap
        if cap is None or captured.size < cap * _WARN_AT:
            return
        if captured.size > cap:
            raise RefusedError(
                f"the checkpoint has {captured.size} bytes, more than size_cap ({cap})",
                hint="Raise size_cap, or keep less state (a watermark, a shorter window).",
            )
        log.warning("the checkpoint has %d bytes, close to size_cap (%d)", captured.size, cap)

    # 5 to 8

    def _decided(self, epoch: EpochRun, saved: CheckpointManifest, captured: Captured) -> None:
        line = self.lineage
        line.links = 0 if captured.is_full else line.links + 1
        line.full_bytes = saved.size_bytes + (0 if captured.is_full else line.full_bytes)
        line.newest, line.next_id = saved, saved.checkpoint_id + 1
        line.plans.pop(epoch.batch, None)
        self._capture.saved(captured)

    def _record(self, manifest: CheckpointManifest) -> None:
        try:
            self.lineage.newest = self._store.update_manifest(manifest)
        except FencedError:
            raise
        except (StoreUnavailableError, SeamarkError) as error:
            # the sinks know what they show; the next start asks them and records it
            log.warning("the statuses of epoch %d were not recorded: %s", manifest.epoch, error)
            self.lineage.newest = manifest

    def _retain(self, saved: CheckpointManifest) -> None:
        if saved.is_incremental:
            return  # nothing can go before a new chain has begun
        try:
            removed = self._store.prune(self._settings.keep)
            if removed and (self._partitioned or saved.table_store_checkpoint_path):
                self._partitioned = drop_unreferenced(self._store, self._states) > 0
        except FencedError:
            raise
        except SeamarkError as error:
            log.warning("old checkpoints were not pruned: %s", error)

    def _finished(self, epoch: EpochRun, saved: CheckpointManifest, placed: Placed) -> None:
        self._on_epoch(
            EpochFigures(
                epoch=epoch.number,
                checkpoint_id=saved.checkpoint_id,
                rows_per_sink=dict.fromkeys(self._crew.names),
                seconds=time.perf_counter() - epoch.started,
                phases=dict(epoch.phases),
                new_bytes=saved.size_bytes,
                full_bytes=self.lineage.full_bytes,
                watermark=saved.watermark,
                sinks=self._crew.names,
            )
        )

    def _running(self) -> RunningQuery:
        if self._query is None:
            raise SeamarkError("there is no query")
        return self._query
