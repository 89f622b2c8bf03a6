"""A pipeline's way of using the sink under test, without a pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from seamark.sinks.contract import Committable, Epoch, Receipt, Sink
from seamark.spark.batch_log import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OpenSink = Callable[[], Sink]
"""A new handle on the same target each time, as another process would have it."""

ReadRows = Callable[[], Iterable[int]]
"""The values of the column ``n`` of every row that readers of the target see."""

MakeFrame = Callable[[Sequence[int]], "DataFrame"]
"""A DataFrame with a column ``n`` of these values and a column ``word``."""

PIPELINE = "trades"
SINK = "bars"
OLD = "0198a000-0000-7000-8000-00000000000a"
NEW = "0198b000-0000-7000-8000-00000000000b"


def epoch(number: int, timeline: str = OLD, fingerprint: str | None = None) -> Epoch:
    """An epoch as a pipeline would describe it."""
    plan = Plan(offsets=f'v1\n{{"batchWatermarkMs":0}}\n{{"rate":{number}}}', sources={"0/1": "v1"})
    return Epoch(PIPELINE, SINK, timeline, number, fingerprint or f"{timeline}-{number}", plan)


def receipt(number: int, attempt: str, timeline: str = OLD) -> Receipt:
    """The record that must be there after :func:`epoch` was committed."""
    about = epoch(number, timeline)
    return Receipt(PIPELINE, SINK, timeline, number, about.fingerprint, attempt, about.plan)


class Writer:
    """Takes epochs through the sink under test; nothing is shared between two handles."""

    def __init__(self, open_sink: OpenSink, frame: MakeFrame) -> None:
        self._open_sink = open_sink
        self._frame = frame

    def opened(self) -> Sink:
        """What a process uses while its start may yet be refused."""
        sink = self._open_sink()
        sink.open(PIPELINE, SINK, self._frame([]).schema)
        return sink

    def new_handle(self) -> Sink:
        """What a process that has just started would use."""
        sink = self.opened()
        sink.prepare_target()
        return sink

    def stage(
        self, rows: Sequence[int], about: Epoch, attempt: str, *, by: Sink | None = None
    ) -> Sink:
        """Stage these rows; the handle that did it."""
        sink = by or self.new_handle()
        sink.stage(self._frame(rows), about, attempt)
        return sink

    def prepare(self, rows: Sequence[int], about: Epoch, attempt: str) -> Committable:
        """Stage and prepare these rows; the committable as it comes back out of a checkpoint."""
        return through_json(self.stage(rows, about, attempt).prepare())

    def show(self, rows: Sequence[int], about: Epoch, attempt: str) -> Committable:
        """Take these rows through all steps."""
        sink = self.stage(rows, about, attempt)
        committable = sink.prepare()
        sink.commit(committable)
        return through_json(committable)


def through_json(committable: Committable) -> Committable:
    """What a checkpoint keeps of a committable."""
    again: Committable = json.loads(json.dumps(committable))
    return again
