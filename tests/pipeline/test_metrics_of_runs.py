"""What real runs tell Prometheus and OpenTelemetry, held against what the store says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from seamark import open_store
from seamark.errors import FencedError, SeamarkError
from seamark.pipeline.declaration.settings import Step
from seamark.reports.checkpoint_document import describe
from seamark.sinks import Committable, FileSink
from tests.dashboards.support.expressions import KAFKA_ONLY, all_queries, names_with_values
from tests.pipeline.support.workloads import (
    orders,
    run,
    shown,
    windowed,
    write_input,
)
from tests.pipeline.test_metrics import Scrape
from tests.pipeline.test_tracing import FailingAtTheEnd, Received

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seamark import Pipeline

pytestmark = pytest.mark.warm

NOT_FIGURES = {
    # texts, and numbers that are names or stand elsewhere
    *("store", "timeline", "attempt", "fingerprint", "decision", "writer", "standing", "pins"),
    *("written_by_seamark", "broken_chain", "supersedes", "state_checksum", "pipeline_hash"),
    *("configuration", "may_lose", "upgrade", "fork", "native", "inflight", "warnings"),
    # epoch - 1, and its name in other systems
    *("batch", "wal_position"),
}
"""What ``seamark show`` has and the metrics do not."""


class Watched:
    """A pipeline whose figures go into a registry of its own."""

    def __init__(self, spark: SparkSession, folder: Path, root: Path, provider: str) -> None:
        self.spark, self.folder, self.root, self.provider = spark, folder, root, provider
        self.registry = CollectorRegistry()

    def run(self, **options: Any) -> Scrape:
        """Run to the end of the input; what is told then."""
        where = (self.spark, "windowed", self.provider, self.folder, self.root)
        run(*where, metrics=self.registry, **options)
        return self.scrape()

    def scrape(self) -> Scrape:
        return Scrape(self.registry)

    def get(self, name: str, **labels: str) -> float | None:
        return self.scrape().get(name, "windowed", **labels)


@pytest.fixture(scope="module")
def few_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An input of a few epochs: enough for a watermark, and for checkpoints that build on one."""
    return write_input(tmp_path_factory.mktemp("input"), 2)


@pytest.fixture
def watched(spark: SparkSession, few_files: Path, tmp_path: Path) -> Watched:
    return Watched(spark, few_files, tmp_path, "rocksdb-changelog")


@pytest.fixture(scope="module")
def traced(
    spark: SparkSession, few_files: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Watched, Received]:
    """A run from beginning to end, with all its spans."""
    done = Watched(spark, few_files, tmp_path_factory.mktemp("traced"), "rocksdb-changelog")
    received = Received()
    # without a last checkpoint at the end of the run, so that the newest one is that of an epoch
    done.run(finish_timeout=0, full_every=100, tracer_provider=received.provider)
    return done, received


def newest_document(root: Path) -> dict[str, Any]:
    """What ``seamark show --json`` prints of the newest checkpoint."""
    with open_store(root / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        return describe(store, newest)


def test_every_figure_that_show_has_about_an_epoch_is_in_the_metrics(
    traced: tuple[Watched, Received],
) -> None:
    watched, _ = traced
    seen = watched.scrape()
    document = newest_document(watched.root)
    figures = dict(_figures(seen, document))
    assert document.keys() - NOT_FIGURES == {name.partition(".")[0] for name in figures}
    wrong = {name: pair for name, pair in figures.items() if pair[0] != pair[1]}
    assert wrong == {}
    assert document["restore_reads_bytes"] > (seen.get("checkpoint_object_bytes", "windowed") or 0)


def _figures(
    seen: Scrape, document: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[object, object]]]:
    """By its name in ``show``: what that says, and what the metrics say."""

    def get(name: str, **labels: str) -> float | None:
        return seen.get(name, "windowed", **labels)

    def one(key: str, name: str) -> tuple[str, tuple[object, object]]:
        return key, (document[key], get(name))

    yield one("id", "checkpoint_id")
    yield one("epoch", "checkpoint_epoch")
    yield one("generation", "generation")
    yield one("full", "checkpoint_full")
    yield one("referenced_bytes", "checkpoint_referenced_bytes")
    yield one("restore_bytes", "checkpoint_restore_bytes")
    yield one("state_partitions", "state_partitions")
    yield "timestamp_ms", (document["timestamp_ms"] / 1000, get("checkpoint_timestamp_seconds"))
    yield "parents", (len(document["parents"]), get("checkpoint_parents"))
    yield "gaps", (len(document["gaps"]), get("checkpoint_gaps"))
    # the manifest's own JSON counts in show
    yield "size_bytes", (document["size_bytes"] > (get("checkpoint_added_bytes") or 0) > 0, True)
    yield "restore_reads_bytes", ((get("checkpoint_object_bytes") or 0) > 0, True)
    operators = dict(document["operators"])
    logs = operators.pop("log")  # of Spark; they are no state
    for name, gauge in (("new_bytes", "state_new_bytes"), ("stored_bytes", "state_bytes")):
        by_operator = [get(gauge, operator=each) or 0 for each in operators]
        yield name, (document[name] - logs[name], sum(by_operator))
    for each, about in operators.items():
        yield f"operators.{each}.bytes", (about["bytes"], get("state_bytes", operator=each))
        yield f"operators.{each}.files", (about["files"], get("state_files", operator=each))
        new = get("state_new_bytes", operator=each)
        yield f"operators.{each}.new_bytes", (about["new_bytes"], new)
        largest = get("state_largest_partition_bytes", operator=each)
        yield (
            f"operators.{each}.partitions",
            (max(about["partitions"].values(), default=0), largest),
        )
    for source, at in document["sources"].items():
        for name, value in at.items():
            told = get("source_offset", source=source, topic="", partition=name)
            yield f"sources.{source}.{name}", (float(value), told)
    assert document["tables"] == document["lag"] == document["age_seconds"] == {}
    yield from (("tables", (None, None)), ("lag", (None, None)), ("age_seconds", (None, None)))
    marks = document["watermarks"]
    yield "watermarks.epoch", (marks["epoch"] / 1000, get("watermark_timestamp_seconds"))
    yield "watermarks.next", (marks["next"] / 1000, get("next_watermark_timestamp_seconds"))
    for source, mark in marks["sources"].items():
        told = get("source_watermark_timestamp_seconds", source=source)
        yield f"watermarks.sources.{source}", (mark / 1000, told)
    for sink, about in document["sinks"].items():
        status = get("sink_status", sink=sink, status=about["status"].lower())
        yield f"sinks.{sink}.status", (1, status)
        guarantee = get("sink_info", sink=sink, guarantee=about["guarantee"])
        yield f"sinks.{sink}.guarantee", (1, guarantee)
        shown_epoch = get("sink_committed_epoch", sink=sink)
        yield f"sinks.{sink}.committed_epoch", (about["committed_epoch"], shown_epoch)
        yield f"sinks.{sink}.rows", (about["digest"]["rows"], get("sink_epoch_rows", sink=sink))
        total = get("sink_history_rows", sink=sink)
        yield f"sinks.{sink}.total_rows", (about["digest"]["total_rows"], total)
        yield f"sinks.{sink}.rows_total", (total, get("sink_rows_total", sink=sink))
    for step in document["timings"]:
        count = get("epoch_step_duration_seconds_count", step=step)
        yield f"timings.{step}", (document["epoch"], count)
    yield "took_seconds", (document["epoch"], get("epoch_duration_seconds_count"))


def test_the_dashboard_and_the_alerts_ask_for_what_a_run_has_exported(
    traced: tuple[Watched, Received],
) -> None:
    watched, _ = traced
    wanted = set().union(*(query.names for query in all_queries()))
    assert wanted - KAFKA_ONLY <= names_with_values(watched.registry)


@pytest.mark.slow
def test_a_start_tells_whether_the_working_copy_was_kept_or_rebuilt(watched: Watched) -> None:
    copies = []

    def note(seen: Scrape) -> None:
        outcomes = ("new", "kept", "rebuilt")
        told = {
            each: seen.get("recovery_working_copy", "windowed", outcome=each) for each in outcomes
        }
        copies.append([each for each, value in told.items() if value])

    note(watched.run())
    note(watched.run())
    assert watched.get("recovery_restored_bytes") == 0
    place = watched.root / "elsewhere"
    note(watched.run(working_copy=place))
    assert (watched.get("recovery_restored_bytes") or 0) > 0
    assert copies == [["new"], ["kept"], ["rebuilt"]]
    assert (watched.get("starts_total"), watched.get("recoveries_total")) == (3, 2)
    assert watched.get("generation") == 3
    assert watched.get("pipeline_running") == 0


@pytest.mark.slow
def test_a_damaged_checkpoint_that_a_start_skips_is_told(watched: Watched) -> None:
    watched.run(finish_timeout=0)
    newest = max((watched.root / "store").rglob("manifest*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    watched.run(finish_timeout=0)
    assert watched.get("recovery_damaged_checkpoints") == 1
    assert watched.get("recovery_superseded_checkpoints") == 0


class Refusing(FileSink):
    """Commits nothing after its first epoch."""

    def commit(self, committable: Committable) -> None:
        if int(str(committable.get("epoch", 2))) > 1:
            raise OSError("no room: password=hunter2")
        super().commit(committable)


def declared(watched: Watched, sink: FileSink, **options: Any) -> Pipeline:
    from seamark import Pipeline

    p = Pipeline("windowed", watched.root / "store", metrics=watched.registry, **options)
    source = p.source("orders", orders(watched.spark, watched.folder))
    p.sink("main", windowed(source), sink)
    p.sink("large", source.where("v > 50"), FileSink(watched.root / "large"))
    return p


@pytest.mark.slow
def test_a_sink_that_fails_is_told_while_the_checkpoint_stands(watched: Watched) -> None:
    received = Received()
    options = {"commit_tries": 2, "tracer_provider": received.provider}
    with pytest.raises(SeamarkError, match="not every sink has committed it"):
        declared(watched, Refusing(watched.root / "main"), **options).run()
    epoch = watched.get("checkpoint_epoch")
    assert watched.get("sink_status", sink="main", status="failed") == 1
    assert watched.get("sink_status", sink="large", status="committed") == 1
    assert watched.get("sink_committed_epoch", sink="large") == epoch
    assert watched.get("sink_failures_total", sink="main", step="commit") == 2
    assert watched.get("sink_failures_total", sink="large", step="commit") == 0
    assert watched.get("epochs_failed_total") == 1
    failed = [span for span in received.spans if span.status.status_code is StatusCode.ERROR]
    assert [span.name for span in failed] == ["seamark.epoch"]
    assert "hunter2" not in "".join(span.to_json() for span in received.spans)


def test_a_writer_that_is_fenced_is_counted(watched: Watched) -> None:
    def take_over(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) == (Step.WRITE, "after", 2):
            with open_store(watched.root / "store") as other:
                other.claim(pipeline="windowed")

    with pytest.raises(FencedError):
        watched.run(on_step=take_over)
    assert watched.get("fenced_total") == 1
    assert watched.get("epochs_failed_total") == 1
    assert watched.get("generation") == 1


def test_epochs_of_a_run_are_spans_with_their_steps_and_the_start_is_one(
    traced: tuple[Watched, Received],
) -> None:
    watched, received = traced
    epochs = [span for span in received.spans if span.name == "seamark.epoch"]
    assert len(epochs) == watched.get("epochs_completed_total")
    assert [(span.attributes or {})["seamark.epoch"] for span in epochs] == [
        number + 1 for number in range(len(epochs))
    ]
    for whole in epochs:
        assert whole.context is not None
        steps = [
            span
            for span in received.spans
            if span.parent is not None and span.parent.span_id == whole.context.span_id
        ]
        assert [span.name for span in steps] == [f"seamark.epoch.{step.value}" for step in Step]
        told = whole.attributes or {}
        for span in steps:
            assert span.start_time is not None
            assert span.end_time is not None
            took = (span.end_time - span.start_time) / 1e9
            measured = told[f"seamark.phases.{span.name.rpartition('.')[2]}"]
            assert abs(took - float(str(measured))) < 1e-5, "as in the log"
            assert whole.start_time is not None
            assert whole.end_time is not None
            assert whole.start_time <= span.start_time <= span.end_time <= whole.end_time
    [start] = [span for span in received.spans if span.name == "seamark.recovery"]
    assert (start.attributes or {})["seamark.fresh_start"] is True


@pytest.mark.slow
def test_whoever_receives_spans_and_fails_stops_no_epoch_of_a_run(watched: Watched) -> None:
    provider = TracerProvider()
    provider.add_span_processor(FailingAtTheEnd())
    seen = watched.run(tracer_provider=provider)
    assert (seen.get("epochs_completed_total", "windowed") or 0) > 2
    assert seen.get("epochs_failed_total", "windowed") == 0
    assert all(shown(watched.root).values())


@pytest.mark.slow
def test_a_sink_makes_its_own_spans_inside_of_the_step(watched: Watched) -> None:
    received = Received()

    class Instrumented(FileSink):
        def commit(self, committable: Committable) -> None:
            with received.provider.get_tracer("mine").start_as_current_span("my commit"):
                super().commit(committable)

    declared(watched, Instrumented(watched.root / "main"), tracer_provider=received.provider).run()
    commits = {
        span.context.span_id
        for span in received.spans
        if span.name == "seamark.epoch.commit" and span.context is not None
    }
    own = [span for span in received.spans if span.name == "my commit"]
    assert own
    assert {span.parent.span_id for span in own if span.parent is not None} == commits
