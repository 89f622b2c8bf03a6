"""The base class of sources that can be read from a position.

Tests: ``tests/sources/test_spark_reader.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from seamark.errors import InvalidInputError, RefusedError
from seamark.sources.offsets import Position
from seamark.sources.sequence_reader import Anchored, Placed, PositionRange, SequenceReader
from seamark.spark.error_transport import crossing
from seamark.spark.source_gaps import TableAnchor

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

MAX_ROWS: Final = 20_000
"""Rows of an epoch unless ``max_rows_per_epoch`` says otherwise: they pass through one Python
process and the driver, and 20 000 rows of 1 KB are 20 MB."""
POLL_SECONDS: Final = 0.5
"""Spark asks an idle source about a hundred times a second, which few origins deserve."""
_LONGEST_NUMBER: Final = 20


class SequencedSource(DataSource):
    """A stream of anything that can be read from a position.

    Write ``schema()`` and :meth:`read_from`, register the class, and read it::

        class Feed(SequencedSource):
            def schema(self):
                return "id long, title string"

            def read_from(self, position, limit):
                for item in fetch(after=position, count=limit):
                    yield (item["id"], item["title"]), item["cursor"]

        spark.dataSource.register(Feed)
        spark.readStream.format("Feed").option("max_rows_per_epoch", 5000).load()

    Seamark numbers the rows across restarts, bounds an epoch, hands each row on without reading
    it twice, and after a crash reads the interrupted epoch once more and proves by a
    SHA-256 that its rows are the same.

    The object is pickled before it is read from: open connections and files in ``read_from``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._max_rows = _count(options, "max_rows_per_epoch", MAX_ROWS)
        self._poll_seconds = seconds(options, "poll_seconds", POLL_SECONDS)

    @abstractmethod
    def read_from(self, position: Position | None, limit: int) -> Iterable[Placed]:
        """At most ``limit`` rows from a position on, each with the position after it.

        None is the beginning; every other position is one that this method has given out. The
        order is the same each time, a row once given out never changes, and nothing appears later
        in front of it. No rows mean that there are none yet. None in the place of a row moves the
        position: there is nothing in front of it. What is gone is reported by
        :class:`seamark.errors.PositionUnavailable`, never by leaving it out.
        """

    def read_between(
        self, start: Position | None, end: Position, limit: int
    ) -> Iterable[Placed] | None:
        """The rows after ``start`` up to ``end``, which were given out before.

        Only for sources that know a better way than :meth:`read_from`, such as one that holds
        back what is too new: what was given out once must not be held back again.
        """
        return None

    def check(self, position: Position | None) -> PositionRange | None:
        """What comes after a position and what the origin has; None when that is not known.

        Called before a start changes anything, and by ``seamark sources --check``. What is gone is
        reported by :class:`seamark.errors.PositionUnavailable`, as by :meth:`read_from`.
        """
        return None

    def place_id(self) -> str | None:
        """What tells the origin from another one that the same options lead to; None if unknown.

        Asked before a start, which tells of a change and goes on. It is kept in checkpoints, so it
        holds nothing secret.
        """
        return None

    def anchored(self, position: Position | None, anchor: TableAnchor) -> Anchored:
        """Where to go on instead of a position that :meth:`check` has found gone.

        ``anchor`` is ``"earliest"``, ``"latest"``, or a number of which the source knows what it
        means. Rows that were read before ``position`` must not come again, as far as the origin
        lets that be known. :class:`RefusedError` for a place that is not there.
        """
        raise RefusedError(
            f"a source of the format {self.name()!r} cannot go on elsewhere",
            hint="Take it out of reanchor. Bring the rows back, or start over with a new store.",
        )

    def stop_at_present(self) -> None:
        """Note what is there, and behave from now on as if nothing were added.

        Called once, before a run with ``available_now`` reads. Without it such a run ends at the
        first :meth:`read_from` that returns no rows, which a busy writer can put off.
        """

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Spark's view of this source."""
        from seamark.sources.spark_reader import SparkReader

        with crossing():
            self.use_schema(schema)
        columns, rows = schema.fieldNames(), self._max_rows
        reader = SequenceReader(self, self.name(), columns, rows, self._poll_seconds)
        return SparkReader(reader, rows)

    def use_schema(self, schema: StructType) -> None:
        """Called once, before reading, with the columns that rows must have."""


def seconds(options: MutableMapping[str, str], name: str, default: float) -> float:
    """An option in seconds; :class:`InvalidInputError` unless it is a number of them."""
    text = options.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise InvalidInputError(f"{name} must be a number of seconds, not {text!r}")
    return number


def _count(options: MutableMapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or len(text) > _LONGEST_NUMBER or int(text) == 0:
        shown = repr(text) if len(text) <= _LONGEST_NUMBER else f"{len(text)} characters"
        raise InvalidInputError(f"{name} must be a number of rows above 0, not {shown}")
    return int(text)
