"""Spans of starts, epochs and steps; nobody who receives them stops an epoch."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from seamark.errors import SeamarkError
from seamark.pipeline.telemetry.run_telemetry import RunTelemetry
from seamark.pipeline.telemetry.tracing import Tracing, attributes
from tests.pipeline.support.epochs import EPOCH_14, RECOVERY, epoch, recovery

SECRET = "hunter2-is-a-secret"


class Received:
    """A provider that keeps all spans in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()


def telemetry(provider: object = None) -> RunTelemetry:
    return RunTelemetry("trades", metrics=None, progress_url=None, tracer_provider=provider)


def run_epoch(watched: RunTelemetry, failure: Exception | None = None) -> None:
    """What the coordinator tells of an epoch."""
    watched.begin_epoch(14)
    try:
        for phase, seconds in EPOCH_14.phases.items():
            with watched.step(phase, time.perf_counter()) as span:
                if failure is not None and phase == "commit":
                    raise failure
                span.took(seconds)
        watched.epoch_done(EPOCH_14)
    except Exception as error:  # noqa: BLE001 - as the coordinator does
        watched.epoch_failed(error)
    finally:
        watched.end_epoch()


def test_an_epoch_is_a_span_with_a_span_for_each_step() -> None:
    received = Received()
    run_epoch(telemetry(received.provider))
    whole = received.named("seamark.epoch")
    assert whole.parent is None
    steps = [span for span in received.spans if span is not whole]
    assert [span.name for span in steps] == [f"seamark.epoch.{step}" for step in EPOCH_14.phases]
    for span in steps:
        assert span.parent is not None
        assert whole.context is not None
        assert span.parent.span_id == whole.context.span_id
        assert span.attributes == {
            "seamark.pipeline": "trades",
            "seamark.epoch": 14,
            "seamark.step": span.name.rpartition(".")[2],
        }


def test_a_step_lasts_as_long_as_was_measured() -> None:
    received = Received()
    run_epoch(telemetry(received.provider))
    span = received.named("seamark.epoch.write")
    assert span.start_time is not None
    assert span.end_time is not None
    assert abs((span.end_time - span.start_time) / 1e9 - EPOCH_14.phases["write"]) < 1e-6


def test_attributes_have_the_names_of_the_log() -> None:
    received = Received()
    watched = telemetry(received.provider)
    watched.begin_epoch(14)
    watched.epoch_done(epoch(rows_per_sink={"bars": 31, "large": None}))
    watched.end_epoch()
    told = dict(received.named("seamark.epoch").attributes or {})
    phases = {name: told.pop(f"seamark.phases.{name}") for name in EPOCH_14.phases}
    assert phases == EPOCH_14.phases
    assert told == {
        "seamark.pipeline": "trades",
        "seamark.epoch": 14,
        "seamark.checkpoint_id": 15,
        "seamark.seconds": 0.412,
        "seamark.sinks": ("bars", "large"),
        "seamark.rows.bars": 31,
        "seamark.new_bytes": 41 * 1024,
        "seamark.full_bytes": 3_250_586,
        "seamark.watermark": 1_700_000_000_000,
    }


def test_a_start_is_a_span_inside_of_the_programs_own() -> None:
    received = Received()
    watched = telemetry(received.provider)
    own = received.provider.get_tracer("a program").start_span("nightly")
    with trace.use_span(own, end_on_exit=True), watched.recovering():
        watched.recovered(recovery(skipped=[(17, "torn")], damaged=1), None, 7, "4.0.0")
    span = received.named("seamark.recovery")
    assert span.parent is not None
    assert span.parent.span_id == own.get_span_context().span_id
    told = dict(span.attributes or {})
    assert told["seamark.chosen_id"] == 15
    assert told["seamark.skipped"] == ("17: torn",)
    assert told["seamark.damaged"] == 1
    assert told["seamark.finished.bars"] == "already committed"
    assert told["seamark.copy_outcome"] == "kept"


def test_a_failure_is_on_the_step_and_on_the_epoch_without_secrets() -> None:
    received = Received()
    error = SeamarkError("cannot write", where=f"postgresql://etl:{SECRET}@db/market")
    run_epoch(telemetry(received.provider), failure=error)
    for name in ("seamark.epoch", "seamark.epoch.commit"):
        span = received.named(name)
        assert span.status.status_code is StatusCode.ERROR
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "seamark.errors.SeamarkError"
        assert "cannot write" in str(event.attributes["exception.message"])
    assert received.named("seamark.epoch.save").status.status_code is StatusCode.UNSET
    assert SECRET not in "".join(span.to_json() for span in received.spans)


def test_an_error_of_any_class_has_its_secrets_hidden_and_is_not_endless() -> None:
    received = Received()
    told = f"password={SECRET} " + "at java.lang.Thread " * 1000
    run_epoch(telemetry(received.provider), failure=RuntimeError(told))
    text = received.named("seamark.epoch").to_json()
    assert SECRET not in text
    assert '"exception.type": "RuntimeError"' in text
    assert len(text) < 5000


def test_a_failed_start_is_recorded() -> None:
    received = Received()
    with pytest.raises(ValueError, match="no"), telemetry(received.provider).recovering():
        raise ValueError("no")
    assert received.named("seamark.recovery").status.status_code is StatusCode.ERROR


def test_what_a_step_calls_is_inside_of_it() -> None:
    """As with the instrumentation of a database client that a sink uses."""
    received = Received()
    watched = telemetry(received.provider)
    watched.begin_epoch(14)
    with watched.step("commit", time.perf_counter()):
        received.provider.get_tracer("psycopg").start_span("COMMIT PREPARED").end()
    watched.end_epoch()
    inner, step = received.named("COMMIT PREPARED"), received.named("seamark.epoch.commit")
    assert inner.parent is not None
    assert step.context is not None
    assert inner.parent.span_id == step.context.span_id
    assert not trace.get_current_span().get_span_context().is_valid, "nothing is left behind"


class Failing(SpanExporter, SpanProcessor):
    """Whatever it is asked for, it fails."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ConnectionError(f"the collector at https://x:{SECRET}@collector is gone")

    def on_start(self, span: Span, parent_context: object = None) -> None:
        raise ConnectionError(f"the collector at https://x:{SECRET}@collector is gone")

    def on_end(self, span: ReadableSpan) -> None:
        raise ConnectionError(f"the collector at https://x:{SECRET}@collector is gone")


class FailingAtTheEnd(Failing):
    def on_start(self, span: Span, parent_context: object = None) -> None:
        pass


class FailingProvider(trace.TracerProvider):
    def get_tracer(self, *_: object, **__: object) -> trace.Tracer:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    "processor", [Failing(), FailingAtTheEnd(), SimpleSpanProcessor(Failing())]
)
def test_whoever_receives_spans_and_fails_stops_no_epoch(
    processor: SpanProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    watched = telemetry(provider)
    with caplog.at_level(logging.WARNING, "seamark.pipeline"):
        with watched.recovering():
            watched.recovered(RECOVERY, None, 7, "4.0.0")
        for _ in range(3):
            run_epoch(watched)
    assert watched.timings.percentiles()["total"].p50 == 0.412
    own = [record for record in caplog.records if record.name == "seamark.pipeline"]
    told = [
        record.getMessage() for record in own if "spans are not recorded" in record.getMessage()
    ]
    assert len(told) == (0 if isinstance(processor, SimpleSpanProcessor) else 1)
    assert SECRET not in "".join(told)


def test_a_provider_that_fails_is_told_and_nothing_is_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = telemetry(FailingProvider())
    run_epoch(watched)
    assert "spans are not recorded: not today" in caplog.text


def test_spans_that_are_not_sampled_are_not_exported() -> None:
    received = Received()
    received.provider.sampler = ALWAYS_OFF
    run_epoch(telemetry(received.provider))
    assert received.spans == ()


def test_without_a_provider_an_epoch_costs_microseconds() -> None:
    watched = Tracing("trades")
    best = float("inf")
    for _ in range(200):
        began = time.perf_counter()
        with watched.begin("epoch", epoch=1) as span:
            for step in EPOCH_14.phases:
                with watched.step(f"epoch.{step}", time.perf_counter(), epoch=1, step=step):
                    pass
            span.tell(EPOCH_14.fields())
        best = min(best, time.perf_counter() - began)
    assert best < 0.005, "of the fastest of many, on however slow a machine"


def test_without_the_interface_a_run_is_told_of_as_ever() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from tests.pipeline.test_watchers import EPOCH_14\n"
        "from seamark.pipeline.telemetry.run_telemetry import RunTelemetry\n"
        "watched = RunTelemetry('trades', metrics=None, progress_url=None)\n"
        "with watched.recovering(): pass\n"
        "watched.begin_epoch(14)\n"
        "with watched.step('write', 0.0) as span: span.took(1.0)\n"
        "watched.epoch_done(EPOCH_14)\n"
        "watched.epoch_failed(ValueError('no'))\n"
        "watched.end_epoch()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_what_is_unknown_is_no_attribute() -> None:
    fields: dict[str, object] = {"a": None, "b": "", "c": [], "d": {"e": None, "f": 0}, "g": False}
    assert attributes(fields) == {"seamark.d.f": 0, "seamark.g": False}
