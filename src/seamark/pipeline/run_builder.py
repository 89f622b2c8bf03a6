"""Putting a run together: store, recovery, coordinator and Spark's query with its settings.

Tests: ``tests/pipeline/test_starts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from seamark.capture.capture import Capture
from seamark.capture.executor_restore import executor_fetch
from seamark.capture.executors import executor_mover
from seamark.capture.movers import DriverMover, Mover
from seamark.capture.scrub import Scrub
from seamark.capture.state_moves import BackgroundMoves
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.places.hadoop_copy import open_working_copy
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_references import require_state_inside
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import RefusedError
from seamark.pipeline.declaration.settings import RunOptions
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.epoch.coordinator import Coordinator
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.topic_ids import ids_at
from seamark.pipeline.fork_option import ForkOption, prepare_store
from seamark.pipeline.recovery.recovery import Recovery
from seamark.pipeline.recovery.sink_opening import open_sink, prepare_targets, with_target_names
from seamark.pipeline.recovery.working_dirs import working_place
from seamark.pipeline.run import Run
from seamark.pipeline.run_page import open_run_page
from seamark.pipeline.source_outage import waiting_for
from seamark.pipeline.telemetry.progress_record import progress_url
from seamark.pipeline.telemetry.run_telemetry import RunTelemetry
from seamark.sources.recognition import refuse_endings
from seamark.spark.batch_log import parse_commit
from seamark.spark.failures import refused
from seamark.spark.kafka.sources import KafkaSources
from seamark.spark.pinned_settings import require_known_settings
from seamark.spark.query import RunningQuery
from seamark.spark.session import (
    FILE_MANAGER,
    fast_file_manager,
    is_local,
    retries_tasks,
    session_settings,
)
from seamark.spark.triggers import check_trigger
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_FAR_EVERY: Final = 30.0
"""Seconds between two looks for new snapshots where each look is a request for each store."""

_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class BatchRunner(Protocol):
    """What a query calls with its batches, and where it keeps its files."""

    copy: WorkingCopy

    def attach(self, query: RunningQuery | None) -> None:
        """Set the query that the batches belong to."""

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Do whatever is to be done with a batch."""


class QueryStarter:
    """Starts the one query of a pipeline, as often as a run needs it.

    ``name`` is another name for the query than that of the pipeline, ``settings`` are Spark's, for
    this query. :class:`RefusedError` for a query that cannot run here.
    """

    def __init__(
        self,
        spark: SparkSession,
        declared: DeclaredPipeline,
        trigger: Mapping[str, Any],
        *,
        name: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._declared = declared
        self._trigger = trigger
        self._name = name or declared.identity.name
        self._settings = settings or {}
        self._refuse_a_second_run()
        check_trigger(declared.compiled.df, trigger)
        refuse_endings(spark, declared.compiled.df, trigger)
        self._operators, self._plan_settings = declared.compiled.operators_to_run(
            declared.output_mode
        )

    def _refuse_a_second_run(self) -> None:
        # Spark refuses it too, but only after the claim: then neither of the two would run on
        if any(query.name == self._name for query in self._spark.streams.active):
            raise RefusedError(
                f"a query named {self._name!r} is running in this Spark session already",
                hint="Stop it first; a pipeline has one run at a time.",
            )

    def start(self, runner: BatchRunner) -> StreamingQuery:
        """Start the query on the runner's working copy, and attach it there."""
        from pyspark.errors import AnalysisException

        compiled, copy = self._declared.compiled, runner.copy
        require_known_settings(copy, copy.batches("offsets")[-2:], self._spark)
        require_state_inside(copy, self._spark)
        writer = (
            compiled.df.writeStream.outputMode(self._declared.output_mode)
            .queryName(self._name)
            .option("checkpointLocation", copy.uri)
            .trigger(**self._trigger)
            .foreachBatch(runner.run_batch)
        )
        runner.attach(None)
        with self._query_settings(copy):
            try:
                query = writer.start()
            except AnalysisException as error:
                raise refused(error) from error
        runner.attach(
            RunningQuery(
                self._spark,
                query,
                format_2=self._is_format_2(copy),
                operators=self._operators,
                watermarks={
                    mark.node_id: f"{mark.column} of {', '.join(mark.sources)}"
                    for mark in compiled.watermarks
                },
                settings=self._plan_settings,
            )
        )
        return query

    def _is_format_2(self, copy: WorkingCopy) -> bool:
        """Whether state files have ids; an existing checkpoint keeps the format that it has."""
        commits = copy.batches("commits")
        text = copy.read_text(f"commits/{commits[-1]}") if commits else None
        if text is not None and self._declared.compiled.is_stateful:
            return parse_commit(text)[1] is not None
        return str(self._settings.get(_FORMAT) or self._spark.conf.get(_FORMAT, "1")) == "2"

    def _query_settings(self, copy: WorkingCopy) -> AbstractContextManager[None]:
        """Spark's settings for the query. A file manager that the user has set is kept."""
        # where a task is tried again, this file manager would keep the state file of the first try
        is_single = not retries_tasks(str(self._spark.sparkContext.master))
        is_near = is_local(self._spark) and is_single and isinstance(copy, LocalCopy)
        fast = self._declared.settings.fast_file_manager and is_near
        defaults = {FILE_MANAGER: fast_file_manager(self._spark)} if fast else {}
        changes = {**self._settings, **self._plan_settings}
        return session_settings(self._spark, changes, defaults)


def start_run(
    spark: SparkSession,
    declared: DeclaredPipeline,
    store: CheckpointStore,
    options: RunOptions,
    trigger: Mapping[str, Any],
    kafka: KafkaSources | None = None,
    fork: ForkOption | None = None,
) -> Run:
    """Recover, then start the query. The store is closed when the run has ended or never begins."""
    resources = ExitStack()
    try:
        name = declared.identity.name
        resources.callback(store.close)
        telemetry = RunTelemetry(
            name,
            metrics=options.metrics,
            progress_url=progress_url(options.progress, store),
            tracer_provider=options.tracer_provider,
        )
        resources.callback(telemetry.close)
        page = open_run_page(options.ui, name, store, spark)
        resources.callback(page.close)
        declared = replace(declared, settings=page.followed(declared.settings))
        if kafka is not None:
            telemetry.follow(kafka, declared.settings.consumer_group)
        starter = QueryStarter(spark, declared, trigger)
        place = working_place(store, name, options.working_copy, spark)
        resources.callback(place.close)
        adopt = open_working_copy(options.adopt, spark) if options.adopt is not None else None
        notes = prepare_store(store, declared, fork, telemetry.long_work)
        declared = with_target_names(declared, store)
        sinks = PipelineSinks(declared, telemetry.metrics)
        resources.callback(sinks.close)
        for output in declared.compiled.outputs:
            resources.callback(output.sink.close)
            open_sink(output, name, store, declared.identity.name_at_target(output.name))
        on_executors = declared.settings.capture == "executors" or (
            declared.settings.capture == "auto" and not is_local(spark)
        )
        with telemetry.recovering():
            start = Recovery(
                declared,
                store,
                sinks,
                place=place,
                adopt=adopt,
                long_work=telemetry.long_work,
                fetch_all=executor_fetch(spark, store.backend) if on_executors else None,
            ).run()
            prepare_targets(sinks.outputs, store)
            start.report = replace(start.report, notes=[*notes, *start.report.notes])
            telemetry.recovered(
                start.report, start.checkpoint, start.history.generation, spark.version
            )
        uploads = Uploads(store.shared_objects)
        mover: Mover = (
            executor_mover(spark, start.copy, uploads)
            if on_executors
            else DriverMover(start.copy, uploads)
        )
        moves = _background_moves(spark, declared, store, start.copy, telemetry, on_executors)
        resources.callback(moves.close)
        coordinator = Coordinator(
            declared,
            store,
            Capture(start.copy, mover, start.index, start.small_state, moves, uploads),
            sinks,
            history=start.history,
            telemetry=telemetry,
            uploads=uploads,
        )
        wait = waiting_for(
            kafka,
            start.history,
            declared.identity.looks,
            partial(ids_at, declared.identity, start.history),
        )
        return Run(coordinator, starter.start, start.report, resources.close, wait, page.url)
    except BaseException:
        resources.close()
        raise


def _background_moves(
    spark: SparkSession,
    declared: DeclaredPipeline,
    store: CheckpointStore,
    copy: WorkingCopy,
    telemetry: RunTelemetry,
    on_executors: bool,
) -> BackgroundMoves:
    """What stores Spark's snapshots between epochs."""
    shared, settings = store.shared_objects, declared.settings
    uploads = Uploads(shared, telemetry.stored_between_epochs)
    return BackgroundMoves(
        copy,
        shared,
        settings.background_rate,
        # with one task: epochs need the others
        mover=executor_mover(spark, copy, uploads, tasks=1) if on_executors else None,
        uploads=uploads,
        every=None if isinstance(copy, LocalCopy) else _LOOK_FAR_EVERY,
        scrub=Scrub(shared, settings.scrub_every, telemetry.damage_found),
        on_failure=telemetry.background_put_off,
    )
