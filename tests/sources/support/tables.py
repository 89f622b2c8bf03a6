"""Tables as streams, driven as Spark drives them, without Spark."""

from __future__ import annotations

import pickle

from pyspark.sql.types import StructType

from seamark.sources import TableSource
from seamark.sources.offsets import BEGINNING, Offset
from seamark.sources.sequence_reader import Row, SequenceReader


def options_of(driver: str, dsn: str, **options: str) -> dict[str, str]:
    """Options for a table ``t`` with the key ``id``, unless told otherwise."""
    return {"driver": driver, "dsn": dsn, "table": "t", "key": "id", **options}


class TableStream:
    """One process that reads a table; ``offset`` is what it has committed."""

    def __init__(
        self,
        options: dict[str, str],
        offset: Offset = BEGINNING,
        *,
        max_rows: int = 10,
        schema: StructType | None = None,
    ) -> None:
        source = TableSource(options)
        self.schema = source.schema() if schema is None else schema
        self.source: TableSource = pickle.loads(pickle.dumps(source))
        self.source.use_schema(self.schema)
        self.reader = SequenceReader(self.source, "t", self.schema.fieldNames(), max_rows)
        self.offset = offset

    def epoch(self) -> list[Row]:
        """The rows of the next epoch; none when there is nothing to read."""
        end = self.reader.end_after(self.offset, 1_000)
        rows = self.reader.rows_between(self.offset, end)
        self.offset = end
        return rows

    def drain(self) -> list[Row]:
        """The rows of all epochs until there is nothing to read."""
        rows: list[Row] = []
        while more := self.epoch():
            rows += more
        return rows
