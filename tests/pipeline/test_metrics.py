"""What Prometheus reads of one or several pipelines."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import weakref

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seamark.errors import InvalidInputError, RefusedError
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from tests.pipeline.support.epochs import EPOCH_14, epoch

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


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_an_epoch_that_is_done_is_counted_and_measured(registry: CollectorRegistry) -> None:
    PipelineMetrics("trades", registry).epoch_done(EPOCH_14)
    seen = Scrape(registry)
    assert seen.get("checkpoints_completed_total") == 1
    assert seen.get("checkpoints_failed_total") == 0
    assert seen.get("checkpoint_epoch") == 14
    assert seen.get("checkpoint_size_bytes") == 41 * 1024
    assert seen.get("checkpoint_duration_seconds_count") == 1
    assert seen.get("checkpoint_duration_seconds_sum") == 0.412
    assert seen.get("phase_duration_seconds_sum", phase="write") == 0.38
    assert seen.get("phase_duration_seconds_count", phase="retain") == 1
    assert seen.get("watermark_ms") == 1_700_000_000_000


def test_a_failed_epoch_does_not_move_the_epoch(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.epoch_done(EPOCH_14)
    metrics.epoch_failed()
    seen = Scrape(registry)
    assert seen.get("checkpoint_epoch") == 14
    assert seen.get("checkpoints_failed_total") == 1
    assert seen.get("checkpoints_completed_total") == 1
    assert seen.get("checkpoint_duration_seconds_count") == 1


def test_counters_are_there_from_the_start_and_gauges_are_not(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    seen = Scrape(registry)
    for name in ("checkpoints_completed", "checkpoints_failed", "recoveries", "pipeline_restarts"):
        assert seen.get(f"{name}_total") == 0
    for name in ("checkpoint_epoch", "checkpoint_size_bytes", "watermark_ms"):
        assert seen.get(name) is None
    metrics.epoch_done(epoch(watermark=None))
    assert Scrape(registry).get("watermark_ms") is None


def test_sinks_are_measured_one_by_one(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.sink_prepared("bars", 0.5)
    metrics.sink_committed("bars", 0.25)
    metrics.sink_failed("large")
    seen = Scrape(registry)
    assert seen.get("sink_precommit_duration_seconds_sum", sink="bars") == 0.5
    assert seen.get("sink_commit_duration_seconds_sum", sink="bars") == 0.25
    assert seen.get("sink_commit_failures_total", sink="bars") == 0
    assert seen.get("sink_commit_failures_total", sink="large") == 1
    assert seen.get("sink_commit_duration_seconds_sum", sink="large") is None


def test_recoveries_and_restarts_are_counted(registry: CollectorRegistry) -> None:
    metrics = PipelineMetrics("trades", registry)
    metrics.recovered(0.18)
    metrics.restarted()
    metrics.restarted()
    seen = Scrape(registry)
    assert seen.get("recoveries_total") == 1
    assert seen.get("recovery_duration_seconds_sum") == 0.18
    assert seen.get("pipeline_restarts_total") == 2


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("checkpoint_duration_seconds", 0.01, 15),
        ("sink_precommit_duration_seconds", 0.005, 14),
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
    trades.epoch_done(EPOCH_14)
    quotes.epoch_failed()
    seen = Scrape(registry)
    assert seen.get("checkpoint_epoch", "trades") == 14
    assert seen.get("checkpoint_epoch", "quotes") is None
    assert seen.get("checkpoints_failed_total", "trades") == 0
    assert seen.get("checkpoints_failed_total", "quotes") == 1


def test_a_pipeline_that_starts_again_goes_on_counting(registry: CollectorRegistry) -> None:
    for _ in range(2):
        metrics = PipelineMetrics("trades", registry)
        metrics.epoch_done(EPOCH_14)
        metrics.close()
    assert Scrape(registry).get("checkpoints_completed_total") == 2


def test_without_a_registry_the_default_one_is_used() -> None:
    PipelineMetrics("of the default registry").epoch_done(EPOCH_14)
    assert Scrape(REGISTRY).get("checkpoint_epoch", "of the default registry") == 14


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
    metrics.epoch_done(EPOCH_14)
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
    assert 'seamark_checkpoints_failed_total{pipeline="trades"} 1.0' in text
    assert 'seamark_checkpoints_failed_total{pipeline="quotes"} 1.0' in text
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
