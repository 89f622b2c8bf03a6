"""Putting a run together: store, recovery, coordinator and Spark's query."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Final

from seamark.capture.capture import Capture
from seamark.capture.readers import DriverReader, ExecutorReader, Reader
from seamark.capture.restore import install_plan
from seamark.errors import RefusedError
from seamark.pipeline.declaration.compile import Compiled
from seamark.pipeline.declaration.settings import Settings
from seamark.pipeline.declaration.structure import DeclaredPipeline, PipelineIdentity
from seamark.pipeline.epoch.coordinator import Coordinator
from seamark.pipeline.epoch.sink_crew import SinkCrew
from seamark.pipeline.recovery.recovery import Recovery, StartingPoint
from seamark.pipeline.recovery.working_dirs import working_root
from seamark.pipeline.run import Run
from seamark.pipeline.telemetry.display import Display
from seamark.pipeline.telemetry.epoch_stats import EpochFigures
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.pipeline.telemetry.metrics_server import split_address
from seamark.pipeline.telemetry.progress_record import ProgressRecord, progress_url
from seamark.pipeline.telemetry.timings import Timings
from seamark.sources.recognition import refuse_endings
from seamark.spark.batch_log import parse_commit
from seamark.spark.failures import refused
from seamark.spark.plans.executed_plan import PlanOperator
from seamark.spark.query import RunningQuery
from seamark.spark.session_settings import session_settings
from seamark.spark.versions import FILE_MANAGER, fast_file_manager, is_local
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class Launcher:
    """Everything that one run is made of."""

    def __init__(
        self,
        spark: SparkSession,
        compiled: Compiled,
        identity: PipelineIdentity,
        settings: Settings,
        *,
        store: CheckpointStore,
        working_copy: str | os.PathLike[str] | None,
        adopt: str | None,
        output_mode: str,
        progress: str | None,
        metrics: Any,
    ) -> None:
        self._spark = spark
        self._compiled = compiled
        self._identity = identity
        self._settings = settings
        self._store = store
        self._adopt = adopt
        self._output_mode = output_mode
        self._timings = Timings()
        self._display = Display(identity.name)
        self._held = ExitStack()
        self._held.callback(store.close)
        self._metrics = self._open_metrics(metrics)
        self._crew = SinkCrew(compiled, settings, self._metrics)
        self._held.callback(self._crew.close)
        self._given_copy = working_copy
        self._operators: list[PlanOperator] = []
        self._plan_settings: dict[str, str] = {}
        self._progress = ProgressRecord(progress_url(progress, store), identity.name)
        self._held.callback(self._progress.close)

    def _open_metrics(self, wanted: Any) -> PipelineMetrics | None:
        if wanted is None or wanted is False:
            return None
        if isinstance(wanted, bool):
            metrics = PipelineMetrics(self._identity.name)
        elif isinstance(wanted, int):
            metrics = PipelineMetrics(self._identity.name, port=wanted)
        elif isinstance(wanted, str):
            host, port = split_address(wanted)
            metrics = PipelineMetrics(self._identity.name, port=port, host=host)
        else:
            metrics = PipelineMetrics(self._identity.name, registry=wanted)
        self._held.callback(metrics.close)
        return metrics

    def start(self, trigger: Mapping[str, Any]) -> Run:
        """Recover, then start the query."""
        try:
            self._refuse_a_second_run()
            refuse_endings(self._spark, self._compiled.df, trigger)
            self._operators, self._plan_settings = self._compiled.operators_to_run(
                self._output_mode
            )
            root = working_root(
                self._store,
                self._identity.name,
                self._given_copy,
                is_local=is_local(self._spark),
            )
            for output in self._compiled.outputs:
                self._held.callback(output.sink.close)
                output.sink.open(self._identity.name, output.name, output.df.schema)
            declared = DeclaredPipeline(
                compiled=self._compiled, identity=self._identity, settings=self._settings
            )
            recovered = Recovery(
                declared, self._store, self._crew, root=root, adopt=self._adopt
            ).run()
            if words := self._progress.bring_to(recovered.lineage.newest):
                recovered.report.notes.append(words)
            self._display.show_recovery(recovered.report)
            if self._metrics is not None:
                self._metrics.recovered(recovered.report.seconds)
            return self._run(recovered, trigger)
        except BaseException:
            self._held.close()
            raise

    def _refuse_a_second_run(self) -> None:
        # Spark refuses it too, but only after the claim: then neither of the two would run on
        name = self._identity.name
        if any(query.name == name for query in self._spark.streams.active):
            raise RefusedError(
                f"a query named {name!r} is running in this Spark session already",
                hint="Stop it first; a pipeline has one run at a time.",
            )

    def _run(self, recovered: StartingPoint, trigger: Mapping[str, Any]) -> Run:
        coordinator = Coordinator(
            self._identity,
            self._settings,
            self._store,
            recovered.copy,
            Capture(recovered.copy, recovered.digests, self._reader(recovered)),
            self._crew,
            recovered.lineage,
            self._progress,
            self._epoch_done,
            self._epoch_failed,
        )

        def launch() -> StreamingQuery:
            return self._launch(coordinator, recovered, trigger)

        def replan(batch: int) -> None:
            if self._metrics is not None:
                self._metrics.restarted()
            recovered.copy.forget_after(batch - 1)
            install_plan(recovered.copy, batch, recovered.lineage.plans[batch])

        return Run(
            coordinator,
            recovered.report,
            self._timings,
            launch,
            replan,
            self._held.close,
            self._settings.stop_timeout,
            lambda epoch: epoch == 0 or os.path.exists(recovered.copy.path(f"commits/{epoch - 1}")),
            self._identity.addresses,
        )

    def _launch(
        self, coordinator: Coordinator, recovered: StartingPoint, trigger: Mapping[str, Any]
    ) -> StreamingQuery:
        from pyspark.errors import AnalysisException

        writer = (
            self._compiled.df.writeStream.outputMode(self._output_mode)
            .queryName(self._identity.name)
            .option("checkpointLocation", recovered.copy.root)
            .trigger(**trigger)
            .foreachBatch(coordinator.run_batch)
        )
        coordinator.attach(None)
        with self._query_settings():
            try:
                query = writer.start()
            except AnalysisException as error:
                raise refused(error) from error
        format_2 = self._is_format_2(recovered)
        coordinator.attach(
            RunningQuery(
                self._spark,
                query,
                format_2=format_2,
                operators=self._operators,
                watermarks={
                    mark.node_id: f"{mark.column} of {', '.join(mark.sources)}"
                    for mark in self._compiled.watermarks
                },
            )
        )
        return query

    def _reader(self, recovered: StartingPoint) -> Reader:
        wanted = self._settings.capture
        if wanted == "executors" or (wanted == "auto" and not is_local(self._spark)):
            return ExecutorReader(self._spark, recovered.copy)
        return DriverReader(recovered.copy)

    def _is_format_2(self, recovered: StartingPoint) -> bool:
        """Whether state files have ids; an existing checkpoint keeps the format that it has."""
        commits = recovered.copy.batches("commits")
        text = recovered.copy.read_text(f"commits/{commits[-1]}") if commits else None
        if text is not None and self._compiled.is_stateful:
            return parse_commit(text)[1] is not None
        return str(self._spark.conf.get(_FORMAT, "1")) == "2"

    def _query_settings(self) -> AbstractContextManager[None]:
        """What the query is to run with. The file manager is the user's choice, if there is one."""
        fast = self._settings.fast_file_manager and is_local(self._spark)
        defaults = {FILE_MANAGER: fast_file_manager(self._spark)} if fast else {}
        return session_settings(self._spark, self._plan_settings, defaults)

    def _epoch_done(self, figures: EpochFigures) -> None:
        self._timings.add({**figures.phases, "total": figures.seconds})
        if self._metrics is not None:
            self._metrics.epoch_done(figures)
        self._display.show_epoch(figures)

    def _epoch_failed(self) -> None:
        if self._metrics is not None:
            self._metrics.epoch_failed()
