"""What an epoch costs in a table of Iceberg, against Spark's Parquet writer and ``add_files``.

The baseline writes the rows with ``df.write.parquet`` and adds the files with pyiceberg's
``add_files`` and a table property in one transaction, as a foreachBatch by hand would: without a
checkpoint or a synced disk. Ours stages, prepares and commits an epoch. The catalog is SQLite.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import DataFrame

from harness import Row, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark.sinks import IcebergSink
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from sink_rows import trades
from tests.pipeline.support.driver import session
from tests.sinks.support.iceberg import TABLE, make_table, properties, table_at

ROWS: Final = 1_000_000
QUICK_ROWS: Final = 100_000
SMALL_ROWS: Final = 2_000


def new_table(folder: Path, rows: DataFrame) -> Table:
    """An empty table with the columns of some rows, in a catalog of its own."""
    folder.mkdir()
    return make_table(folder, rows.limit(0).toArrow().schema)


def by_hand(folder: Path, rows: DataFrame) -> Callable[[], None]:
    """Have Spark write the files, and add them."""
    table = new_table(folder, rows)
    numbers = itertools.count(1)

    def run() -> None:
        number = next(numbers)
        batch = folder / f"batch-{number}"
        rows.coalesce(2).write.parquet(str(batch))
        files = [f"file://{file}" for file in sorted(batch.glob("*.parquet"))]
        table.refresh()
        with table.transaction() as transaction:
            transaction.set_properties({"batch": str(number)})
            transaction.add_files(files, check_duplicate_files=False)

    return run


def with_sink(folder: Path, rows: DataFrame) -> Callable[[], None]:
    """Take the rows through a sink, an epoch each time."""
    new_table(folder, rows)
    sink = IcebergSink(properties(folder), TABLE)
    sink.open(PIPELINE, SINK, rows.schema)
    numbers = itertools.count(1)

    def run() -> None:
        number = next(numbers)
        sink.stage(rows.coalesce(2), epoch(number), f"a{number}")
        sink.commit(sink.prepare())

    return run


def compared(folder: Path, rows: DataFrame, rounds: int) -> tuple[float, str]:
    """Our time as a multiple of the baseline's, and the baseline's."""
    count = rows.count()
    hand, ours = folder / f"hand-{count}", folder / f"ours-{count}"
    cases = {"by hand": by_hand(hand, rows), "ours": with_sink(ours, rows)}
    times = interleaved(cases, rounds)
    for place in (hand, ours):
        stored = table_at(place).scan().count()
        assert stored == count * (rounds + 1), f"{place.name}: {stored}"
    return ratio(times["ours"], times["by hand"]), in_milliseconds(times["by hand"])


def main() -> None:
    """Measure a large epoch and a small one."""
    given = options(__doc__)
    count, rounds = (QUICK_ROWS, 3) if given.quick else (ROWS, 7)
    spark = session()
    # pyiceberg refuses files with the timestamps that Spark writes by default
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    with scratch(given.directory.absolute()) as folder:
        large, large_base = compared(folder, trades(spark, count), rounds)
        small, small_base = compared(folder, trades(spark, SMALL_ROWS), rounds * 3)
    baseline = "Spark's Parquet writer, add_files"
    show(
        "Iceberg",
        [
            Row(f"{count} rows in an epoch, appended", f"{baseline} ({large_base})", large, 1.15),
            Row(f"{SMALL_ROWS} rows in an epoch", f"{baseline} ({small_base})", small),
        ],
    )
    spark.stop()


if __name__ == "__main__":
    main()
