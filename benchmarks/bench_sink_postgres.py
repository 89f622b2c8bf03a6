"""What an epoch costs in a table of PostgreSQL, against psycopg's COPY of the same rows.

The baselines take the rows to the driver and copy them into the table, in one transaction, without
any guarantee after a crash: with ``write_row``, as psycopg's manual does, and as text that Arrow
makes of whole columns. Ours copies them into a staging table from all tasks at once, and one
transaction moves them and enters the epoch into the ledger. The server waits for its disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import psycopg
import pyarrow as pa
from pyarrow import csv
from pyspark.sql import DataFrame

from harness import Row, in_milliseconds, interleaved, options, ratio, show
from seamark.sinks import PostgresSink
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from sink_rows import trades
from tests.pipeline.support.driver import session
from tests.support.databases import postgres_server

ROWS: Final = 1_000_000
QUICK_ROWS: Final = 100_000
COLUMNS: Final = "symbol text, volume bigint, price double precision, at timestamptz"
TABLES: Final = ("by_row", "by_column", "ours")


def by_row(dsn: str, rows: DataFrame) -> Callable[[], None]:
    """Take the rows to the driver and write one after the other."""

    def run() -> None:
        table = rows.toArrow()
        with psycopg.connect(dsn) as connection:
            connection.execute("TRUNCATE by_row")
            with connection.cursor().copy("COPY by_row FROM STDIN") as copying:
                for batch in table.to_batches():
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        copying.write_row(row)

    return run


def by_column(dsn: str, rows: DataFrame) -> Callable[[], None]:
    """Take the rows to the driver and write them as text, many at a time."""

    def run() -> None:
        table = rows.toArrow()
        with psycopg.connect(dsn) as connection:
            connection.execute("TRUNCATE by_column")
            statement = "COPY by_column FROM STDIN (FORMAT csv)"
            with connection.cursor().copy(statement) as copying:
                for batch in table.to_batches(max_chunksize=10_000):
                    text = pa.BufferOutputStream()
                    csv.write_csv(batch, text, csv.WriteOptions(include_header=False))
                    copying.write(bytes(text.getvalue()))

    return run


def with_sink(dsn: str, rows: DataFrame) -> Callable[[], None]:
    """Take the rows through a sink, an epoch each time."""
    sink = PostgresSink(dsn, "ours")
    sink.open(PIPELINE, SINK, rows.schema)
    numbers = itertools.count(1)

    def run() -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute("TRUNCATE ours")
        number = next(numbers)
        sink.stage(rows, epoch(number), f"a{number}")
        sink.commit(sink.prepare())

    return run


def main() -> None:
    """Measure one epoch of many rows."""
    given = options(__doc__)
    count, rounds = (QUICK_ROWS, 3) if given.quick else (ROWS, 5)
    spark = session()
    with postgres_server(given.directory, durable=True) as server:
        with psycopg.connect(server.dsn) as connection:
            for table in TABLES:
                connection.execute(f"CREATE TABLE {table} ({COLUMNS})".encode())
        rows = trades(spark, count)
        cases = {
            "by_row": by_row(server.dsn, rows),
            "by_column": by_column(server.dsn, rows),
            "ours": with_sink(server.dsn, rows),
        }
        times = interleaved(cases, rounds)
        counts = []
        with psycopg.connect(server.dsn) as connection:
            for table in TABLES:
                query = f"SELECT count(*), sum(volume) FROM {table}".encode()
                counts.append(connection.execute(query).fetchone())
        assert len(set(counts)) == 1, counts
    what = f"{count} rows in an epoch, appended"
    show(
        "PostgreSQL",
        [
            Row(
                what,
                f"psycopg COPY, write_row ({in_milliseconds(times['by_row'])})",
                ratio(times["ours"], times["by_row"]),
                1.15,
            ),
            Row(
                what,
                f"psycopg COPY, text by Arrow ({in_milliseconds(times['by_column'])})",
                ratio(times["ours"], times["by_column"]),
            ),
        ],
    )
    spark.stop()


if __name__ == "__main__":
    main()
