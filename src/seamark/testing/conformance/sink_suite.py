"""All that a sink promises, put together from its chapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pytest

from seamark.testing.conformance.sink_crashes import SinkAborts, SinkCrashes
from seamark.testing.conformance.sink_examples import MakeFrame, OpenSink, ReadRows, Writer
from seamark.testing.conformance.sink_lineage import SinkLedger, SinkLineage, SinkTakingBack
from seamark.testing.conformance.sink_overlaps import SinkOverlaps
from seamark.testing.conformance.sink_visibility import (
    SinkReadPoints,
    SinkRepeats,
    SinkVisibility,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SinkSuite(
    SinkVisibility,
    SinkRepeats,
    SinkReadPoints,
    SinkAborts,
    SinkCrashes,
    SinkOverlaps,
    SinkLineage,
    SinkLedger,
    SinkTakingBack,
):
    """What :class:`seamark.sinks.Sink` promises, one test per promise.

    A subclass gives the fixtures ``open_sink`` (each call a new handle on the same target, which
    is empty when a test starts), ``visible`` (each call reads the column ``n`` of all rows that
    readers of the target see) and ``spark``, a session.
    """

    can_take_back: ClassVar[bool] = True
    """False for a sink that refuses ``unpublish_after``."""
    has_keys: ClassVar[bool] = False
    """True for a sink that shows one row for each value of ``n``, which is its key."""

    @pytest.fixture
    def open_sink(self) -> OpenSink:
        raise NotImplementedError("override this fixture: a new handle on the same, empty target")

    @pytest.fixture
    def visible(self) -> ReadRows:
        raise NotImplementedError("override this fixture: the values of n that readers see")

    @pytest.fixture
    def frame(self, spark: SparkSession) -> MakeFrame:
        def made(values: Sequence[int]) -> DataFrame:
            rows = [(value, str(value)) for value in values]
            return spark.createDataFrame(rows, "n long, word string")

        return made

    @pytest.fixture
    def failing_frame(self, frame: MakeFrame) -> MakeFrame:
        """As ``frame``, but it cannot be read to its end."""

        def made(values: Sequence[int]) -> DataFrame:
            failing = "if(n < 0, cast(raise_error('died on the way') as long), n) as n"
            return frame([*values, -1]).selectExpr(failing, "word")

        return made

    @pytest.fixture
    def writer(self, open_sink: OpenSink, frame: MakeFrame) -> Writer:
        return Writer(open_sink, frame)
