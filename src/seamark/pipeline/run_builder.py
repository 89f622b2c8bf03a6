"""Putting a run together: store, recovery, coordinator and Spark's query.

Tests: ``tests/pipeline/test_starts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from seamark.capture.capture import Capture
from seamark.capture.readers import DriverReader, ExecutorReader, Reader
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.pipeline.declaration.settings import RunOptions
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.epoch.coordinator import Coordinator
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.query_starter import QueryStarter
from seamark.pipeline.recovery.recovery import Recovery
from seamark.pipeline.recovery.working_dirs import working_root
from seamark.pipeline.run import Run
from seamark.pipeline.telemetry.progress_record import progress_url
from seamark.pipeline.telemetry.run_telemetry import RunTelemetry
from seamark.spark.versions import is_local
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunBuilder:
    """Builds one run of a declared pipeline. Closes the store when the run has ended."""

    def __init__(
        self,
        spark: SparkSession,
        declared: DeclaredPipeline,
        store: CheckpointStore,
        options: RunOptions,
    ) -> None:
        self._spark = spark
        self._declared = declared
        self._store = store
        self._options = options

    def start(self, trigger: Mapping[str, Any]) -> Run:
        """Recover, then start the query."""
        resources = ExitStack()
        try:
            return self._start(trigger, resources)
        except BaseException:
            resources.close()
            raise

    def _start(self, trigger: Mapping[str, Any], resources: ExitStack) -> Run:
        declared, store, options = self._declared, self._store, self._options
        name = declared.identity.name
        resources.callback(store.close)
        telemetry = RunTelemetry(
            name, metrics=options.metrics, progress_url=progress_url(options.progress, store)
        )
        resources.callback(telemetry.close)
        sinks = PipelineSinks(declared, telemetry.metrics)
        resources.callback(sinks.close)
        starter = QueryStarter(self._spark, declared, trigger)
        root = working_root(store, name, options.working_copy, is_local=is_local(self._spark))
        for output in declared.compiled.outputs:
            resources.callback(output.sink.close)
            output.sink.open(name, output.name, output.df.schema)
        start = Recovery(declared, store, sinks, root=root, adopt=options.adopt).run()
        telemetry.recovered(start.report, start.history.newest)
        coordinator = Coordinator(
            declared,
            store,
            Capture(start.copy, start.digests, self._reader(start.copy)),
            sinks,
            history=start.history,
            telemetry=telemetry,
        )
        return Run(coordinator, starter, start.report, on_end=resources.close)

    def _reader(self, copy: WorkingCopy) -> Reader:
        setting = self._declared.settings.capture
        if setting == "executors" or (setting == "auto" and not is_local(self._spark)):
            return ExecutorReader(self._spark, copy)
        return DriverReader(copy)
