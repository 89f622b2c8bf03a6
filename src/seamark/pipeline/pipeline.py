"""The pipeline that a user declares, checks and runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seamark._common.checks import check_name
from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.native.bisection import Bisection, bisect, judged_by, restored_test, span_of
from seamark.pipeline.declaration.compatibility import CompatibilityCheck
from seamark.pipeline.declaration.compile import Compiled, Output, compile_outputs
from seamark.pipeline.declaration.only_declared import refuse_to_start
from seamark.pipeline.declaration.settings import PipelineSettings, RunOptions
from seamark.pipeline.declaration.source_loading import loaded
from seamark.pipeline.declaration.source_positions import (
    require_fitting_anchors,
    require_known_sources,
)
from seamark.pipeline.declaration.structure import (
    DeclaredPipeline,
    PipelineIdentity,
    explanation,
    structure_of,
)
from seamark.pipeline.declaration.target_places import require_places_apart
from seamark.pipeline.declaration.upgrade_plan import upgrade_table
from seamark.pipeline.epoch.begun_epoch import next_tables
from seamark.pipeline.fork_option import ForkOption, check_start
from seamark.pipeline.recovery.rollback import require_sinks_can_follow, roll_back
from seamark.pipeline.replay.replayer import Replayer
from seamark.pipeline.replay.result import Replay
from seamark.pipeline.run import Run
from seamark.pipeline.run_builder import start_run
from seamark.sinks.contract import Sink
from seamark.sources.recognition import origin_ids, position_looks
from seamark.spark.kafka.sources import KafkaSources
from seamark.spark.pinned_settings import classes_of
from seamark.spark.plans.named_queries import written_out
from seamark.spark.plans.plan import PlanSources
from seamark.spark.reference_tables import delta_version, version_recorded
from seamark.spark.session import active_session, session_of, use_own_python
from seamark.spark.source_folders import folder_ids, input_folders
from seamark.store import CheckpointStore, open_store
from seamark.store.inspection import newest_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

OutputMode = Literal["append", "update", "complete"]


class Pipeline:
    """Many sources, many sinks, one exactly-once epoch.

    Every epoch (micro-batch) becomes one checkpoint in ``store``, and all sinks commit with it or
    none does. Kill it at any moment; the next start finishes or undoes what was going on::

        p = seamark.Pipeline("trades", store="s3://bucket/trades")
        trades = p.source("trades", spark.readStream.format("kafka")….load())
        p.sink("large", trades.where("qty > 1000"), FileSink("/data/large"))
        p.run(available_now=True)

    ``working_copy`` is where Spark keeps its own checkpoint files, which can be made again from
    the store at any time: a path, or a URI that Spark knows, such as ``hdfs://…``. ``progress`` is
    where the position of each source is recorded for other programs: the URL of a progress store,
    None, or ``auto`` for RocksDB next to a local store. ``adopt`` names the checkpoint directory of
    an existing query to go on from, ``adopt_as`` the output that it has become when the pipeline
    has others too, with ``policy="evolve"``. ``fork`` is a checkpoint of another store,
    ``"STORE@ID"``, at which this pipeline begins its own. ``metrics`` is True, a port of this
    machine, ``"host:port"``, or a Prometheus registry; ``tracer_provider`` is OpenTelemetry's, if
    not the global one; ``ui`` is a port or ``"host:port"`` where a page shows the run. All other
    options are those of :class:`seamark.pipeline.declaration.settings.PipelineSettings`.
    """

    def __init__(
        self,
        name: str,
        store: str | os.PathLike[str],
        *,
        working_copy: str | os.PathLike[str] | None = None,
        output_mode: OutputMode = "append",
        storage_options: Mapping[str, Any] | None = None,
        adopt: str | os.PathLike[str] | None = None,
        adopt_as: str | None = None,
        fork: str | os.PathLike[str] | None = None,
        progress: str | None = "auto",
        metrics: Any = None,
        tracer_provider: Any = None,
        ui: int | str | None = None,
        **settings: Any,
    ) -> None:
        if output_mode not in ("append", "update", "complete"):
            raise InvalidInputError(
                f"output_mode must be 'append', 'update' or 'complete', not {output_mode!r}"
            )
        known = {option.name for option in fields(PipelineSettings)}
        if unknown := sorted(settings.keys() - known):
            raise InvalidInputError(
                f"a pipeline has no option {unknown[0]!r}",
                hint=f"Known are: {', '.join(sorted(known))}.",
            )
        self.name = check_name(name, "pipeline name")
        self.settings = PipelineSettings(**settings)
        self._store_url = store
        self._storage_options = storage_options
        self._output_mode = output_mode
        self._run_options = RunOptions(
            working_copy=working_copy,
            adopt=os.fspath(adopt) if adopt is not None else None,
            adopt_as=adopt_as,
            progress=progress,
            metrics=metrics,
            tracer_provider=tracer_provider,
            ui=ui,
        )
        if fork is not None and adopt is not None:
            raise InvalidInputError("a pipeline begins at one place: adopt= or fork=, not both")
        self._fork = None if fork is None else ForkOption(fork, storage_options)
        self._sources = PlanSources()
        self._outputs: dict[str, Output] = {}
        self._spark: SparkSession | None = None
        self._open_store().close()  # a wrong URL is reported here

    # declaring

    def source(self, name: str, df: DataFrame | DataStreamReader) -> DataFrame:
        """Declare a stream under a name that stays the same in every checkpoint; build on it.

        ``df`` is the result of ``spark.readStream…load()``, or the reader without ``.load()``: then
        an error about a missing connector names the package that has it.
        """
        check_name(name, "source name")
        stream = loaded(df, self.settings.source_timeout)
        self._use(stream)
        if name in self._sources.info:
            raise InvalidInputError(f"there is a source {name!r} already")
        self._sources.add(name, stream)
        return stream

    def table(
        self,
        name: str,
        table: DataFrame | str | os.PathLike[str],
        *,
        version: int | Literal["recorded", "latest"] = "recorded",
        storage_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Declare a table that streams are joined with; every checkpoint records its version.

        The path or URL of a Delta table is read at the version of the newest checkpoint, or of an
        epoch that has begun after it, so that a restart reads the same rows; at the newest version
        when there is neither, or with ``version="latest"``. A DataFrame is taken as it is: a change
        since the checkpoint, of its files or of the version that its connector tells, is told by
        the start.
        """
        check_name(name, "table name")
        if name in self._sources.tables:
            raise InvalidInputError(f"there is a table {name!r} already")
        if not isinstance(table, str | os.PathLike):
            self._use(table)
            self._sources.add_table(name, table, None)
            return table
        recorded = None
        if version == "recorded":
            recorded = version_recorded(name, self._recorded(name))
        wanted, table_id = recorded or (version if isinstance(version, int) else None, "")
        found = delta_version(name, os.fspath(table), wanted, table_id, storage_options)
        frame = found.read(self._spark or active_session())
        self._use(frame)
        self._sources.add_table(name, frame, found.recorded)
        return frame

    def recorded_version(self, name: str) -> str | None:
        """The version of a table in the newest checkpoint, to read a DataFrame at; None without.

        For tables whose connector has versions, such as the snapshots of Iceberg::

            reader, at = spark.read.format("iceberg"), p.recorded_version("symbols")
            symbols = reader.option("snapshot-id", at) if at else reader
            p.table("symbols", symbols.load("lake.shop.symbols"))
        """
        recorded = self._recorded(name)
        return None if recorded is None else recorded.offsets.get("version")

    def _recorded(self, table: str) -> ConnectorCheckpoint | None:
        with self._open_store() as store:
            newest = self._fork.newest(store) if self._fork else newest_checkpoint(store)
            return next_tables(store, newest).get(table)

    def sink(self, name: str, df: DataFrame, sink: Sink) -> None:
        """Declare where the rows of an output go."""
        check_name(name, "sink name")
        self._use(df)
        if not isinstance(sink, Sink):
            raise InvalidInputError(
                f"sink {name!r} is {type(sink).__name__}, not a seamark.sinks.Sink"
            )
        if name in self._outputs:
            raise InvalidInputError(f"there is a sink {name!r} already")
        if any(output.sink is sink for output in self._outputs.values()):
            raise InvalidInputError(f"sink {name!r}: the same object is used for another output")
        self._outputs[name] = Output(name, written_out(df), sink)

    def _use(self, df: DataFrame) -> None:
        spark = session_of(df)
        if self._spark is None:
            self._spark = spark
            use_own_python(spark)  # a function in a plan keeps the Python of when it was put there
        elif self._spark is not spark:
            raise RefusedError("all sources and sinks of a pipeline must be of one Spark session")

    # asking

    def check(self) -> CompatibilityCheck:
        """Compare plan, topology, configuration and positions with the store; start nothing.

        With ``policy="evolve"`` it also prints what would become of every source, operator and sink
        of a pipeline that has changed.
        """
        declared = self._looked_at(self._declared())
        with self._open_store() as store:
            found = check_start(store, declared, self._fork)
        if found.upgrade is not None:
            print(upgrade_table(found.upgrade))  # noqa: T201 - as explain() does
        return found

    def explain(self) -> str:
        """Print, and return, what the pipeline reads, keeps, writes and guarantees."""
        text = explanation(self._declared(), self._sources.info)
        print(text)  # noqa: T201 - as DataFrame.explain() does
        return text

    def _declared(self) -> DeclaredPipeline:
        compiled, identity = self._compiled(list(self._outputs.values()))
        adopted = self._run_options.adopted_output(self._outputs, self.settings)
        return DeclaredPipeline(
            compiled=compiled,
            identity=identity,
            settings=self.settings,
            output_mode=self._output_mode,
            adopted=None if adopted is None else self._compiled([adopted])[1],
        )

    def _compiled(self, outputs: Sequence[Output]) -> tuple[Compiled, PipelineIdentity]:
        share, spark = self.settings.share_state, self._session()
        compiled = compile_outputs(
            outputs, self._sources, output_mode=self._output_mode, share_state=share
        )
        structure = structure_of(self.name, self._output_mode, self._sources.info, compiled, spark)
        require_places_apart(self.name, structure["sinks"])
        kafka = self._kafka(compiled.leaves)
        identity = PipelineIdentity(
            name=self.name,
            structure=structure,
            leaves=compiled.leaves,
            lines_of_folders=compiled.first_lines,
            read_apart=compiled.read_apart,
            watermarks=compiled.watermarks,
            sinks=tuple(output.name for output in outputs),
            tables=compiled.tables,
            guarantees={output.name: output.sink.guarantee.value for output in outputs},
            spark_version=self._session().version,
            addresses=kafka.addresses,
            servers=kafka.servers,
            subscriptions=kafka.subscriptions,
            folders=folder_ids(self._sources.info),
            input_folders=input_folders(self._session(), self._sources),
            consumer_group=self.settings.consumer_group,
        )
        return compiled, identity

    def _kafka(self, leaves: Iterable[str]) -> KafkaSources:
        options = {name: self._sources.options_of(name) for name in dict.fromkeys(leaves)}
        return KafkaSources(self._session(), options)

    def _looked_at(self, declared: DeclaredPipeline) -> DeclaredPipeline:
        """Look at Kafka before anything starts; at others when it is known where they go on."""
        identity, patience = declared.identity, self.settings.source_timeout
        require_known_sources(self.settings.reanchor, identity.leaves)
        if self.settings.consumer_group is not None and not identity.addresses:
            raise InvalidInputError(
                "consumer_group is for sources of Kafka, and the pipeline has none"
            )
        if not patience:
            return declared
        looked_at = self._kafka(identity.leaves).look(patience)
        topics = {name: known.topics for name, known in looked_at.items()}
        absent = {name: known.absent for name, known in looked_at.items() if known.absent}
        others = {
            name: (self._sources.info[name].format, self._sources.options_of(name))
            for name in identity.leaves
            if name not in looked_at
        }
        looks = position_looks(self._session(), others, patience)
        require_fitting_anchors(self.settings.reanchor, looked_at, looks)
        again = partial(self._kafka(identity.leaves).topics, patience)
        identity = replace(
            identity,
            topics=topics,
            topics_again=again,
            absent=absent,
            looks=looks,
            origins=origin_ids(looks),
        )
        return replace(declared, identity=identity)

    def rollback(self, checkpoint_id: int) -> CheckpointManifest:
        """Go back to an earlier checkpoint for good: the next start goes on from its epoch.

        Later checkpoints are taken out of use and a new timeline starts, also when it is the newest
        one. What sinks have shown since is taken back by the next start; :class:`RefusedError` when
        one of them cannot.
        """
        with self._open_store() as store:
            require_sinks_can_follow(store, checkpoint_id, self.name, self._outputs.values())
            return roll_back(store, checkpoint_id, self.name)

    def bisect(
        self,
        predicate: Callable[[int, Path], bool],
        *,
        good: int | None = None,
        bad: int | None = None,
    ) -> Bisection:
        """Find the first epoch for which ``predicate`` is false, by halving.

        It is called with an epoch and Spark's checkpoint directory as it was after it, for example
        to look into the state with ``spark.read.format("statestore")``. ``good`` and ``bad`` are
        checkpoints of which the answer is known. Nothing is changed.
        """
        with self._open_store() as store:
            span = span_of(store, good=good, bad=bad)
            return bisect(span, restored_test(store, judged_by(predicate), classes_of(self._spark)))

    def replay(self, epoch: int, *, outputs: Collection[str] | None = None) -> Replay:
        """Run a decided epoch again, and compare what comes out with what it wrote.

        It reads the rows that it was planned for, on the state and with the watermark that there
        was. All outputs are computed, and those named by ``outputs`` given back as DataFrames.
        Nothing is claimed or changed, also while the pipeline runs elsewhere::

            again = p.replay(58)
            print(again)                     # which outputs are equal, and why one is not
            again.outputs["bars"].show()

        A changed pipeline shows what it would have written. :class:`CheckpointNotFoundError` for an
        epoch of which the store no longer has enough, :class:`RefusedError` for a pipeline that
        does not fit its state, :class:`DamageError` when that state is not whole.
        """
        with self._open_store() as store:
            return self.replayer(store).replay(epoch, outputs)

    def replayer(self, store: CheckpointStore) -> Replayer:
        """What :meth:`replay` uses: for several epochs, or those of a copy of the store."""
        at = self._run_options.working_copy
        return Replayer(self._session(), self._declared(), store, at)

    def _open_store(self) -> CheckpointStore:
        return open_store(self._store_url, storage_options=self._storage_options)

    def _session(self) -> SparkSession:
        if self._spark is None:
            raise InvalidInputError("the pipeline has no source and no sink")
        return self._spark

    # running

    def start(self, trigger: Mapping[str, Any] | None = None) -> Run:
        """Recover and start; ``trigger`` is what ``DataStreamWriter.trigger`` takes.

        Returns when the store is claimed, the last epoch finished and the query started.
        """
        refuse_to_start()
        declared = self._looked_at(self._declared())
        return start_run(
            self._session(),
            declared,
            self._open_store(),
            self._run_options,
            dict(trigger or {"processingTime": "0 seconds"}),
            self._kafka(declared.identity.leaves) if declared.identity.addresses else None,
            self._fork,
        )

    def run(self, *, available_now: bool = True, timeout: float | None = None) -> Run:
        """Run until everything that is there has been read, or for ever; raises what fails.

        SIGTERM, Ctrl-C and ``timeout`` seconds let the epoch finish and return."""
        run = self.start({"availableNow": True} if available_now else None)
        run.wait_with_signals(timeout)
        return run
