"""Running decided epochs again: nothing is claimed, no sink is called, and nothing is written.

Tests: ``tests/pipeline/test_replay.py``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from seamark._common.checks import check_number
from seamark._common.logs import logger_named
from seamark._common.text import plural, time_text
from seamark.capture.executor_restore import executor_fetch
from seamark.capture.planned_files import changed_files, modified_by
from seamark.capture.restore import FetchAll
from seamark.capture.state_comparison import StateComparison, compare_changes
from seamark.checkpoint_dir.state_files import parse_state_file
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import InvalidInputError, RefusedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.native.state_choice import CHANGELOG, FORMAT_VERSION
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.replay.explanations import changes_since, compared
from seamark.pipeline.replay.one_batch import ONE_BATCH, OneBatch
from seamark.pipeline.replay.recorded_epochs import (
    EpochToReplay,
    RecordedEpoch,
    epoch_to_replay,
    epochs_of,
)
from seamark.pipeline.replay.result import OutputComparison, Replay
from seamark.pipeline.replay.scratch import (
    RecordedPlan,
    lines_of_folders,
    rebuild,
    recorded_file,
    recorded_plan,
    scratch_folder,
)
from seamark.pipeline.run_builder import QueryStarter
from seamark.spark.failures import are_rows_lost, explained, is_of_spark
from seamark.spark.kept_rows import drop_rows, in_session
from seamark.spark.plans.determinism import unrepeatable_parts
from seamark.spark.plans.plan import analyzed
from seamark.spark.row_digests import (
    RowDigest,
    comparable_digest,
    digest_of,
    why_undigestible,
)
from seamark.spark.session import is_local
from seamark.store import CheckpointStore
from seamark.store.inspection import was_pruned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logger_named("seamark.pipeline")

_NEEDS: Final = (
    "Nothing was changed. It needs the rows that it read, which a source may have deleted since, "
    "and a pipeline that fits its state."
)


class EpochOutcome(NamedTuple):
    """One of several epochs that were to be run again."""

    epoch: int
    replay: Replay | None = None
    error: SeamarkError | None = None
    """Why it was not run, or failed."""


class Replayer:
    """Runs epochs of one store again, by one declared pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        declared: DeclaredPipeline,
        store: CheckpointStore,
        working_copy: str | os.PathLike[str] | None = None,
    ) -> None:
        self._spark = spark
        self._declared = declared
        self._identity = declared.identity
        self._store = store
        self._working_copy = working_copy
        owner = store.owner()
        if owner.pipeline is not None and owner.pipeline != self._identity.name:
            raise RefusedError(
                f"this store belongs to the pipeline {owner.pipeline!r}, not "
                f"{self._identity.name!r}",
                where=store.url,
                hint="Replay an epoch with the pipeline that ran it.",
            )

    @cached_property
    def epochs(self) -> dict[int, RecordedEpoch]:
        """The epochs of the store when it was first asked, and why some cannot be run again."""
        return epochs_of(self._store)

    def replay(self, epoch: int, outputs: Collection[str] | None = None) -> Replay:
        """Run one epoch again. Errors are those of :meth:`seamark.Pipeline.replay`."""
        check_number("epoch", epoch, 1, 1 << 62)
        numbers = self._numbers(outputs)
        found = epoch_to_replay(self._store, epoch, self.epochs)
        changes = changes_since(found.decided, self._identity)
        with scratch_folder(self._spark, self._working_copy) as scratch:
            lines = lines_of_folders(found.decided, self._identity)
            plan = recorded_plan(self._store, found.decided, scratch.below("plan"), lines)
            copy = scratch.below("checkpoint")
            rebuild(self._store, found, plan, copy, self._identity, self._fetch())
            batch = OneBatch(copy, found.decided.batch, plan.entry.watermark_ms)
            try:
                kept = self._run(batch, found, plan)
                state = self._compared_state(copy, plan, found.decided.batch)
                reached = batch.next_watermark
                return self._result(found, plan, kept, numbers, state, changes, reached)
            except BaseException as error:
                batch.discard()
                if is_of_spark(error):  # such as an executor that held rows and was lost
                    raise _failed(epoch, explained(error)) from error
                raise

    def each(
        self, epochs: Iterable[int], outputs: Collection[str] | None = None
    ) -> Iterator[EpochOutcome]:
        """Run epochs again, one after the other; one that cannot be run does not end it.

        The rows of each are dropped when the next one is asked for.
        """
        for epoch in epochs:
            try:
                again = self.replay(epoch, outputs)
            except SeamarkError as error:
                yield EpochOutcome(epoch, error=error)
                continue
            with again:
                yield EpochOutcome(epoch, again)

    def _fetch(self) -> FetchAll | None:
        return None if is_local(self._spark) else executor_fetch(self._spark, self._store.backend)

    def _numbers(self, outputs: Collection[str] | None) -> dict[str, int]:
        """The numbers of the outputs that are asked for, by name."""
        if isinstance(outputs, str):
            raise InvalidInputError(f"outputs is a list of names: [{outputs!r}]")
        numbers = {each.name: n for n, each in enumerate(self._declared.compiled.outputs)}
        if unknown := sorted(set(outputs or ()) - numbers.keys()):
            raise InvalidInputError(
                f"the pipeline has no output {unknown[0]!r}",
                hint=f"It has: {', '.join(numbers)}.",
            )
        return {name: n for name, n in numbers.items() if outputs is None or name in outputs}

    # the batch

    def _run(self, batch: OneBatch, found: EpochToReplay, plan: RecordedPlan) -> DataFrame:
        starter = QueryStarter(
            self._spark,
            self._declared,
            ONE_BATCH,
            name=f"{self._identity.name}-replay-{found.epoch}-{uuid.uuid4().hex[:8]}",
            settings=_state_settings(plan, found.decided.batch + 1),
        )
        try:
            query = starter.start(batch)
            try:
                return batch.rows(query)
            finally:
                batch.stop(query)
        except Exception as error:
            cause = explained(error, self._identity.addresses) if is_of_spark(error) else error
            if not isinstance(cause, SeamarkError) or isinstance(cause, RefusedError):
                raise
            raise _failed(found.epoch, cause) from error

    def _compared_state(self, copy: WorkingCopy, plan: RecordedPlan, batch: int) -> StateComparison:
        index = plan.chain.index
        if index is None:
            return StateComparison()  # an earlier Seamark stored no hashes of single files
        return compare_changes(
            copy, index.files, batch + 1, lambda path: recorded_file(self._store, plan.chain, path)
        )

    # what came out

    def _result(
        self,
        found: EpochToReplay,
        plan: RecordedPlan,
        kept: DataFrame,
        numbers: Mapping[str, int],
        state: StateComparison,
        changes: tuple[str, ...],
        next_watermark: int,
    ) -> Replay:
        rows = in_session(kept, self._spark)
        frames = {n: self._declared.compiled.rows_of(rows, at) for n, at in numbers.items()}
        sources = changed_files(plan.plan, modified_by(self._spark))
        notes = [
            *sources,
            *self._other_watermark(found.decided, next_watermark),
            *self._uncompared(found.decided, state),
        ]
        for note in notes:
            log.warning("epoch %d, run again: %s", found.epoch, note)
        return Replay(
            epoch=found.epoch,
            checkpoint_id=found.decided.checkpoint_id,
            outputs=frames,
            comparisons={
                name: self._compared(name, frame, found.decided, changes, sources)
                for name, frame in frames.items()
            },
            state=state,
            changes=changes,
            notes=tuple(notes),
            release=lambda: drop_rows(kept),
        )

    def _compared(
        self,
        name: str,
        frame: DataFrame,
        decided: CheckpointManifest,
        changes: tuple[str, ...],
        sources: list[str],
    ) -> OutputComparison:
        known = comparable_digest(decided, name)
        recorded = None if known is None else RowDigest(known.rows, known.digest)
        replayed = None if why_undigestible(frame.schema) else digest_of(frame)
        unrepeatable: list[str] = []
        if recorded != replayed and recorded is not None:
            output = next(o for o in self._declared.compiled.outputs if o.name == name)
            jvm = self._spark.sparkContext._jvm
            unrepeatable = unrepeatable_parts(analyzed(output.df), jvm)
        return compared(
            recorded,
            replayed,
            changes=changes,
            sources=sources,
            unrepeatable=unrepeatable,
            is_new=name not in decided.sink_names,
        )

    def _other_watermark(self, decided: CheckpointManifest, reached: int) -> list[str]:
        recorded = decided.next_watermark
        if recorded is None or recorded == reached or not self._identity.watermarks:
            return []
        was, now = time_text(recorded), time_text(reached)
        return [f"the watermark moves to {now}, and moved to {was} then"]

    def _uncompared(self, decided: CheckpointManifest, state: StateComparison) -> list[str]:
        number = decided.checkpoint_id
        if not state.not_compared or not was_pruned(self._store, number):
            return []
        files = plural(state.not_compared, "state file")
        return [f"checkpoint {number} was pruned meanwhile: {files} could not be compared"]


def _failed(epoch: int, cause: SeamarkError) -> SeamarkError:
    if isinstance(cause, RefusedError):
        return cause
    return SeamarkError(
        f"epoch {epoch} could not be run again: {cause.what}",
        where=cause.where,
        hint=cause.hint if are_rows_lost(cause) else _NEEDS,
    )


def _state_settings(plan: RecordedPlan, version: int) -> dict[str, str]:
    """Settings that Spark does not pin, as they were: the format of state files, and changelogs."""
    settings = {FORMAT_VERSION: "2" if plan.has_ids else "1"}
    paths = plan.chain.index.files if plan.chain.index is not None else plan.chain.digests
    files = (parse_state_file(path.rpartition("/")[2]) for path in paths)
    written = {file.extension for file in files if file is not None and file.version == version}
    if written & {"changelog", "zip"}:
        settings[CHANGELOG] = "true" if "changelog" in written else "false"
    return settings
