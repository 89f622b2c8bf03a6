"""Spans of OpenTelemetry: one for each start, each epoch, and each step of an epoch.

Who receives them is up to the program, by its tracer provider. Without ``opentelemetry-api``, and
as long as no provider was set, nothing is made. Whatever goes wrong with a span is logged once and
never reaches the pipeline.

Tests: ``tests/pipeline/test_tracing.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark._version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

log = logger_named("seamark.pipeline")

_LONGEST: Final = 1000
"""Of an error's text: one of Spark's has pages of Java."""

Attribute = str | bool | int | float | tuple[str, ...]


class Tracing:
    """Makes the spans of one pipeline, with ``provider`` or the program's global one."""

    def __init__(self, pipeline: str, provider: TracerProvider | None = None) -> None:
        self._pipeline = pipeline
        self._tracer = _tracer(provider)
        self._complained = False
        self._clock = _Clock()

    def begin(self, name: str, **fields: Any) -> OpenSpan:
        """Open a span, which is the current one until it is ended."""
        self._clock = _Clock()  # one for a whole epoch, so that its steps fit into it
        return self._open(name, time.perf_counter(), fields)

    def step(self, name: str, began: float, **fields: Any) -> OpenSpan:
        """Open a span inside of the current one, for a step that began then, as
        ``time.perf_counter()`` has it."""
        return self._open(name, began, fields)

    def _open(self, name: str, began: float, fields: Mapping[str, Any]) -> OpenSpan:
        opened = OpenSpan(self._clock, began, self._complain)
        if self._tracer is not None:
            told = attributes({"pipeline": self._pipeline, **fields})
            opened.begin(self._tracer, f"seamark.{name}", told)
        return opened

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.warning("spans are not recorded: %s", redacted(str(error))[:_LONGEST])


class _Clock:
    """Wall-clock times of what ``time.perf_counter()`` has measured."""

    def __init__(self) -> None:
        self._wall, self._measured = time.time_ns(), time.perf_counter()

    def at(self, moment: float) -> int:
        return self._wall + int((moment - self._measured) * 1e9)


class OpenSpan:
    """A span that is open, or nothing at all. None of its methods raises.

    As a context manager it ends with the block, and an exception is recorded on it.
    """

    def __init__(self, clock: _Clock, began: float, complain: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._began = began
        self._seconds: float | None = None
        self._complain = complain
        self._span: Span | None = None
        self._token: Any = None

    def begin(self, tracer: Tracer, name: str, told: Mapping[str, Attribute]) -> None:
        """Open it, and make it the current one."""
        from opentelemetry import context, trace

        try:
            at = self._clock.at(self._began)
            self._span = tracer.start_span(name, attributes=told, start_time=at)
            self._token = context.attach(trace.set_span_in_context(self._span))
        except Exception as error:  # noqa: BLE001 - a processor of the user's can raise anything
            self._complain(error)

    def tell(self, fields: Mapping[str, Any]) -> None:
        """Add attributes; what is unknown or empty is left out."""
        if self._span is None:
            return
        try:
            if self._span.is_recording():
                self._span.set_attributes(attributes(fields))
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)

    def took(self, seconds: float) -> None:
        """It lasted so long, as was measured; otherwise until it is ended."""
        self._seconds = seconds

    def failed(self, error: BaseException) -> None:
        """Record an error: its class and its text without secrets, and no stack."""
        if self._span is None:
            return
        from opentelemetry.trace import Status, StatusCode

        try:
            text = redacted(str(error))[:_LONGEST]
            told = {"exception.type": _class_name(error), "exception.message": text}
            self._span.add_event("exception", told)
            self._span.set_status(Status(StatusCode.ERROR, text))
        except Exception as unrecorded:  # noqa: BLE001 - as above
            self._complain(unrecorded)

    def end(self) -> None:
        """Close it; nothing happens when that was done before."""
        span, self._span = self._span, None
        token, self._token = self._token, None
        if span is None:
            return
        from opentelemetry import context

        now = time.perf_counter()
        until = now if self._seconds is None else self._began + self._seconds
        try:
            if token is not None:
                context.detach(token)
            span.end(self._clock.at(until))
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.failed(error)
        self.end()


def attributes(fields: Mapping[str, Any]) -> dict[str, Attribute]:
    """Fields as OpenTelemetry takes them: ``seamark.rows.bars`` for one inside of another.

    >>> attributes({"epoch": 7, "rows": {"bars": 3, "large": None}, "sinks": ["bars", "large"]})
    {'seamark.epoch': 7, 'seamark.rows.bars': 3, 'seamark.sinks': ('bars', 'large')}
    """
    return dict(_flat("seamark", fields))


def _flat(prefix: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, Attribute]]:
    for name, value in fields.items():
        key = f"{prefix}.{name}"
        if isinstance(value, Mapping):
            yield from _flat(key, value)
        elif isinstance(value, list | tuple):
            if value:
                yield key, tuple(redacted(str(each)) for each in value)
        elif isinstance(value, bool | int | float):
            yield key, value
        elif value is not None and value != "":
            yield key, redacted(str(value))


def _class_name(error: BaseException) -> str:
    cls = type(error)
    is_plain = cls.__module__ == "builtins"
    return cls.__qualname__ if is_plain else f"{cls.__module__}.{cls.__qualname__}"


def _tracer(provider: TracerProvider | None) -> Tracer | None:
    """The tracer of Seamark; None where the interface is not installed, or the provider fails."""
    try:
        from opentelemetry import trace

        return trace.get_tracer("seamark", __version__, provider)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        return None
    except Exception as error:  # noqa: BLE001 - a provider of the user's can raise anything
        log.warning("spans are not recorded: %s", redacted(str(error))[:_LONGEST])
        return None
