"""A sink as a start leaves it: opened, and its target prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from seamark.testing.conformance.sink_examples import PIPELINE, SINK

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from seamark.sinks import Sink

T = TypeVar("T", bound="Sink")


def started(sink: T, schema: StructType, pipeline: str = PIPELINE, name: str = SINK) -> T:
    sink.open(pipeline, name, schema)
    sink.prepare_target()
    return sink
