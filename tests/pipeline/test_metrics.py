"""What Prometheus reads of one or several pipelines."""

from __future__ import annotations

import gc
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import weakref

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seamark import __version__
from seamark.errors import FencedError, InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.telemetry.checkpoint_metrics import NewestCheckpoint
from seamark.pipeline.telemetry.metrics import SINK_STEPS as STEPS
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.pipeline.telemetry.reports import CopyOutcome
from seamark.spark.kafka.positions import PartitionEnds, PositionStatus
from tests.pipeline.support.epochs import EPOCH_14, RECOVERY, epoch, recovery

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(text: str) -> Samples:
    """Samples by name and labels, out of a text exposition."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Scrape:
    """One scrape of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.samples = scraped(generate_latest(registry).decode())

    def get(self, name: str, pipeline: str = "trades", **labels: str) -> float | None:
        """The value of a series, or None when there is none."""
        wanted = frozenset({"pipeline": pipeline, **labels}.items())
        return self.samples.get((f"seamark_{name}", wanted))

    def bounds(self, name: str, **labels: str) -> list[float]:
        """The upper bounds of a histogram's buckets."""
        return sorted(
            float(dict(found)["le"])
            for sample, found in self.samples
            if sample == f"seamark_{name}_bucket" and set(labels.items()) <= found
        )


def get(port: int) -> str:
    """What the HTTP server on a port answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=280) as answer:
        text: str = answer.read().decode()
    return text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def newest(epoch: int) -> NewestCheckpoint:
    return NewestCheckpoint(manifest=CheckpointManifest.new(epoch, epoch=epoch))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_an_epoch_that_is_done_is_counted_and_measured(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.epoch_done(epoch(rows_per_sink={"bars": 31, "large": None}))
    seen = Scrape(registry)
    assert seen.get("epochs_completed_total") == 1
    assert seen.get("epochs_failed_total") == 0
    assert seen.get("checkpoint_written_bytes_total") == 41 * 1024
    assert seen.get("epoch_duration_seconds_count") == 1
    assert seen.get("epoch_duration_seconds_sum") == 0.412
    assert seen.get("epoch_step_duration_seconds_sum", step="write") == 0.38
    assert seen.get("epoch_step_duration_seconds_count", step="retain") == 1
    assert seen.get("sink_rows_total", sink="bars") == 31
    assert seen.get("sink_rows_total", sink="large") is None, "it does not count its rows"


def test_a_failed_epoch_does_not_move_the_epoch(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.checkpoint_is(newest(14))
    metrics.epoch_done(EPOCH_14)
    metrics.epoch_failed()
    seen = Scrape(registry)
    assert seen.get("checkpoint_epoch") == 14
    assert seen.get("epochs_failed_total") == 1
    assert seen.get("epochs_completed_total") == 1
    assert seen.get("epoch_duration_seconds_count") == 1


def test_counters_are_there_from_the_start_and_gauges_are_not(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    seen = Scrape(registry)
    for name in ("epochs_completed", "epochs_failed", "recoveries", "query_restarts", "fenced"):
        assert seen.get(f"{name}_total") == 0
    gauges = ("checkpoint_epoch", "checkpoint_added_bytes", "watermark_timestamp_seconds")
    assert [seen.get(name) for name in gauges] == [None, None, None]
    metrics.has_sinks(["bars"])
    failures = [Scrape(registry).get("sink_failures_total", sink="bars", step=s) for s in STEPS]
    assert failures == [0, 0, 0]


def test_sinks_are_measured_one_by_one(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.sink_prepared("bars", 0.5)
    metrics.sink_committed("bars", 0.25)
    metrics.sink_failed("large", "commit")
    seen = Scrape(registry)
    assert seen.get("sink_prepare_duration_seconds_sum", sink="bars") == 0.5
    assert seen.get("sink_commit_duration_seconds_sum", sink="bars") == 0.25
    assert seen.get("sink_failures_total", sink="large", step="commit") == 1
    assert seen.get("sink_commit_duration_seconds_sum", sink="large") is None


def test_recoveries_and_restarts_are_counted(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.started(recovery(seconds=0.18), 7, "4.0.0")
    metrics.restarted()
    metrics.restarted()
    seen = Scrape(registry)
    assert (seen.get("starts_total"), seen.get("recoveries_total")) == (1, 1)
    assert seen.get("recovery_duration_seconds_sum") == 0.18
    assert seen.get("query_restarts_total") == 2
    assert seen.get("generation") == 7
    assert seen.get("pipeline_info", version=__version__, spark_version="4.0.0") == 1
    metrics.started(recovery(fresh_start=True), 8, "4.0.0")
    seen = Scrape(registry)
    assert (seen.get("starts_total"), seen.get("recoveries_total")) == (2, 1)


def test_what_the_last_start_found_and_did_is_told(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    skipped = [(17, "state.bin: SHA-256 differs"), (16, "superseded by a rollback")]
    found = recovery(
        skipped=skipped,
        damaged=1,
        aborted=["attempt g0006-1 of sink bars"],
        copy_outcome=CopyOutcome.REBUILT,
        restored_bytes=4096,
    )
    metrics.started(found, 7, "4.0.0")
    seen = Scrape(registry)
    assert seen.get("recovery_damaged_checkpoints") == 1
    assert seen.get("recovery_superseded_checkpoints") == 1
    assert seen.get("recovery_aborted_attempts") == 1
    assert seen.get("recovery_restored_bytes") == 4096
    copies = {each: seen.get("recovery_working_copy", outcome=each) for each in CopyOutcome}
    assert copies == {each: each is CopyOutcome.REBUILT for each in CopyOutcome}


def test_a_start_that_fails_and_a_writer_that_is_fenced_are_counted(
    registry: CollectorRegistry,
) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.start_failed(RefusedError("no"))
    metrics.start_failed(FencedError("another writer owns the store"))
    metrics.fenced()
    seen = Scrape(registry)
    assert (seen.get("start_failures_total"), seen.get("fenced_total")) == (2, 2)


def test_a_run_is_running_until_it_is_closed(registry: CollectorRegistry) -> None:
    before = time.time()
    metrics = PipelineMetrics("trades", registry)
    metrics.started(RECOVERY, 7, "4.0.0")
    metrics.epoch_began()
    seen = Scrape(registry)
    assert seen.get("pipeline_running") == 1
    for name in ("pipeline_start_timestamp_seconds", "epoch_start_timestamp_seconds"):
        assert before <= (seen.get(name) or 0) <= time.time()
    metrics.close()
    assert Scrape(registry).get("pipeline_running") == 0


def test_work_between_epochs_is_counted(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.stored_between_epochs(2, 300)
    metrics.background_put_off()
    metrics.damage_found(is_healed=True)
    seen = Scrape(registry)
    assert seen.get("background_uploads_total") == 2
    assert seen.get("background_uploaded_bytes_total") == 300
    assert seen.get("background_failures_total") == 1
    assert seen.get("damaged_objects_total", outcome="healed") == 1
    assert seen.get("damaged_objects_total", outcome="lost") == 0


def test_partitions_that_are_gone_are_not_told_any_more(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    statuses = [
        PositionStatus(
            topic="t", partition=n, wanted=70, ends=PartitionEnds(0, 100), age_ms=5000, left_ms=9000
        )
        for n in range(2)
    ]
    metrics.source_measured("a", statuses)
    metrics.source_measured("b", statuses[:1])
    metrics.source_measured("a", statuses[1:])
    seen = Scrape(registry)
    names = ("source_lag_rows", "source_position_age_seconds", "source_retention_left_seconds")
    for name, value in zip(names, (30, 5, 9), strict=True):
        labels = {
            dict(at)["source"] + dict(at)["partition"]
            for n, at in seen.samples
            if n == f"seamark_{name}"
        }
        assert labels == {"a1", "b0"}
        assert seen.get(name, source="b", topic="t", partition="0") == value
    assert (seen.get("source_measured_timestamp_seconds", source="a") or 0) > 0


def test_names_follow_the_conventions_of_prometheus(registry: CollectorRegistry) -> None:
    PipelineMetrics("trades", registry)
    for family in registry.collect():
        assert re.fullmatch(r"seamark_[a-z]+(_[a-z]+)*", family.name), family.name
        assert not re.search(
            r"_(ms|millis|milliseconds|minutes|kb|mb|kib|mib|percent)(_|$)", family.name
        )
        assert family.documentation
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
        elif family.type == "gauge":
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("epoch_duration_seconds", 0.01, 15),
        ("sink_prepare_duration_seconds", 0.005, 14),
        ("sink_commit_duration_seconds", 0.005, 15),
    ],
)
def test_buckets_double(registry: CollectorRegistry, name: str, first: float, count: int) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.sink_prepared("bars", 1)
    metrics.sink_committed("bars", 1)
    expected = [first * 2**step for step in range(count)] + [float("inf")]
    assert Scrape(registry).bounds(name) == expected


def test_two_pipelines_share_a_registry_without_mixing(registry: CollectorRegistry) -> None:
    trades, quotes = PipelineMetrics("trades", registry), PipelineMetrics("quotes", registry)
    trades.checkpoint_is(newest(14))
    quotes.epoch_failed()
    seen = Scrape(registry)
    assert seen.get("checkpoint_epoch", "trades") == 14
    assert seen.get("checkpoint_epoch", "quotes") is None
    assert seen.get("epochs_failed_total", "trades") == 0
    assert seen.get("epochs_failed_total", "quotes") == 1


def test_a_pipeline_that_starts_again_goes_on_counting(registry: CollectorRegistry) -> None:
    for _ in range(2):
        metrics = PipelineMetrics("trades", registry)
        metrics.epoch_done(EPOCH_14)
        metrics.close()
    assert Scrape(registry).get("epochs_completed_total") == 2


def test_without_a_registry_the_default_one_is_used() -> None:
    PipelineMetrics("of the default registry").epoch_done(EPOCH_14)
    assert Scrape(REGISTRY).get("epochs_completed_total", "of the default registry") == 1


def test_a_registry_that_nobody_uses_is_not_kept() -> None:
    registry = CollectorRegistry()
    PipelineMetrics("trades", registry)
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None


def test_a_pipeline_can_be_scraped_until_it_is_closed(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry, port=0, host="127.0.0.1")
    port = metrics.port
    assert port is not None
    metrics.checkpoint_is(newest(14))
    assert 'seamark_checkpoint_epoch{pipeline="trades"} 14.0' in get(port)
    metrics.close()
    metrics.close()
    assert metrics.port is None
    with pytest.raises(urllib.error.URLError):
        get(port)
    # the port is free again
    again = PipelineMetrics("trades", registry, port=port, host="127.0.0.1")
    assert 'seamark_checkpoint_epoch{pipeline="trades"} 14.0' in get(port)
    again.close()


def test_two_pipelines_share_a_port_until_the_last_one_closes(registry: CollectorRegistry) -> None:
    port = free_port()
    trades = PipelineMetrics("trades", registry, port, host="127.0.0.1")
    quotes = PipelineMetrics("quotes", registry, port, host="127.0.0.1")
    trades.epoch_failed()
    quotes.epoch_failed()
    trades.close()
    text = get(port)
    assert 'seamark_epochs_failed_total{pipeline="trades"} 1.0' in text
    assert 'seamark_epochs_failed_total{pipeline="quotes"} 1.0' in text
    quotes.close()
    with pytest.raises(urllib.error.URLError):
        get(port)


def test_a_port_that_is_taken_is_refused_with_advice(registry: CollectorRegistry) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RefusedError, match="metrics cannot be served on") as caught:
            PipelineMetrics("trades", registry, other.getsockname()[1], host="127.0.0.1")
    assert caught.value.hint is not None
    assert "another port" in caught.value.hint


def test_a_port_of_another_registry_is_not_shared(registry: CollectorRegistry) -> None:
    port = free_port()
    metrics = PipelineMetrics("trades", registry, port, host="127.0.0.1")
    with pytest.raises(RefusedError):
        PipelineMetrics("quotes", CollectorRegistry(), port, host="127.0.0.1")
    metrics.close()


def test_a_number_that_is_no_port_is_refused(registry: CollectorRegistry) -> None:
    with pytest.raises(InvalidInputError, match="the port for metrics"):
        PipelineMetrics("trades", registry, 70_000)


def test_without_prometheus_client_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from seamark.errors import RefusedError\n"
        "from seamark.pipeline.telemetry.metrics import PipelineMetrics\n"
        "try: PipelineMetrics('trades')\n"
        "except RefusedError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'seamark[metrics]'" in done.stdout
