"""What Spark asks of a stream reader, answered by a :class:`SequenceReader`.

Spark runs all of it but :meth:`SparkReader.read` in one Python process next to the driver, which
lives as long as the query does. Rows travel inside the partitions, so that executors neither know
the origin nor read it a second time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from seamark.errors import InvalidInputError
from seamark.sources.offsets import BEGINNING, Offset, offset_from
from seamark.sources.sequence_reader import Row, SequenceReader
from seamark.spark.error_transport import crossing

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

    HAS_ADMISSION_CONTROL = True
else:
    try:
        from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

        HAS_ADMISSION_CONTROL = True
    except ImportError:  # before Spark 4.2
        HAS_ADMISSION_CONTROL = False

        class SupportsTriggerAvailableNow:
            """Stands in where Spark has no such thing."""


_PARTITION: Final = 900 * 1024
"""Spark warns of tasks above 1 000 KiB."""


class RowsPartition(InputPartition):
    """Some rows of an epoch, pickled."""


class SparkReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose offsets are ``{"sequence", "position", "digest"}``."""

    def __init__(self, reader: SequenceReader, max_rows: int) -> None:
        self._reader = reader
        self._max_rows = max_rows
        self._seen: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before the first row."""
        return BEGINNING.as_json()

    def getDefaultReadLimit(self) -> ReadMaxRows:
        """``max_rows_per_epoch`` (asked since Spark 4.2)."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what is there now (asked since Spark 4.2)."""
        with crossing():
            self._reader.stop_at_present()

    def latestOffset(self, *asked: Any) -> dict[str, Any]:
        """Where the next epoch ends. Spark passes start and limit since 4.2, nothing before."""
        with crossing():
            if HAS_ADMISSION_CONTROL:
                start, limit = offset_from(asked[0]), _rows_of(asked[1])
            else:
                start, limit = self._seen or BEGINNING, self._max_rows
            end = self._reader.end_after(start, limit)
            self._seen = end
            return end.as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The rows between two offsets, in pieces for the executors."""
        with crossing():
            first, last = offset_from(start), offset_from(end)
            # before 4.2, a restart passes its position by asking for no rows there
            self._seen = last
            return _pieces(self._reader.rows_between(first, last))

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The rows of a partition, on an executor."""
        return iter(pickle.loads(partition.value))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what is committed stays where it is."""

    def stop(self) -> None:
        """Nothing: Spark ends the process, and with it whatever is open."""

    def __getstate__(self) -> dict[str, Any]:
        # executors need read() alone; the source may hold secrets and connections
        return {}


def _rows_of(limit: object) -> int | None:
    """How many rows an epoch may have; None for all, which ``once`` asks for."""
    if type(limit).__name__ == "ReadAllAvailable":
        return None
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    raise InvalidInputError(f"a stream of rows cannot be read by {limit!r}")


def _pieces(rows: list[Row]) -> list[InputPartition]:
    if not rows:
        return []
    whole = pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
    pieces = min(ceil(len(whole) / _PARTITION), len(rows))
    if pieces == 1:
        return [RowsPartition(whole)]
    size = ceil(len(rows) / pieces)
    return [
        RowsPartition(pickle.dumps(rows[at : at + size], pickle.HIGHEST_PROTOCOL))
        for at in range(0, len(rows), size)
    ]
