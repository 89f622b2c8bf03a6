"""What an epoch costs in a Delta table, against Spark's Parquet writer and one commit of deltalake.

The baseline writes the rows with ``df.write.parquet`` below the table and commits the files with
``create_write_transaction`` and an app transaction, as a foreachBatch by hand would: without a
checkpoint, statistics or a synced disk. Ours stages, prepares and commits an epoch.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame

from harness import Row, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark.sinks import DeltaSink
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from sink_rows import trades
from tests.integration.support.object_server import versitygw_or_moto
from tests.pipeline.support.driver import session
from tests.sinks.support.http_proxy import proxy_before

ROWS: Final = 1_000_000
QUICK_ROWS: Final = 100_000
SMALL_ROWS: Final = 2_000


def by_hand(table: Path, rows: DataFrame) -> Callable[[], None]:
    """Have Spark write the files, and commit them."""
    schema = Schema.from_json(rows.schema.json())
    DeltaTable.create(str(table), schema)
    handle = DeltaTable(str(table))
    numbers = itertools.count(1)

    def run() -> None:
        number = next(numbers)
        folder = table / f"batch-{number}"
        rows.coalesce(2).write.parquet(str(folder))
        handle.update_incremental()
        now = int(time.time() * 1000)
        stats = json.dumps({"numRecords": 0})
        actions = [
            AddAction(f"{folder.name}/{file.name}", file.stat().st_size, {}, now, True, stats)
            for file in folder.glob("*.parquet")
        ]
        properties = CommitProperties(app_transactions=[Transaction("by hand", number)])
        handle.create_write_transaction(
            [*actions], "append", schema, [], commit_properties=properties
        )

    return run


def with_sink(table: str | Path, rows: DataFrame, **given: object) -> Callable[[], None]:
    """Take the rows through a sink, an epoch each time."""
    sink = DeltaSink(table, coalesce=2, **given)  # type: ignore[arg-type]
    sink.open(PIPELINE, SINK, rows.schema)
    numbers = itertools.count(1)

    def run() -> None:
        number = next(numbers)
        sink.stage(rows, epoch(number), f"a{number}")
        sink.commit(sink.prepare())

    return run


def compared(folder: Path, rows: DataFrame, rounds: int) -> tuple[float, str]:
    """Our time as a multiple of the baseline's, and the baseline's."""
    count = rows.count()
    cases = {
        "by hand": by_hand(folder / f"hand-{count}", rows),
        "ours": with_sink(folder / f"ours-{count}", rows),
    }
    times = interleaved(cases, rounds)
    for name in ("hand", "ours"):
        table = DeltaTable(str(folder / f"{name}-{count}"))
        stored = table.to_pyarrow_dataset().count_rows()
        assert stored == count * (rounds + 1), f"{name}: {stored}"
    return ratio(times["ours"], times["by hand"]), in_milliseconds(times["by hand"])


def requests_of_an_epoch(rows: DataFrame) -> int:
    """Requests to an object store for an epoch of one file, when some have gone before."""
    with versitygw_or_moto() as server, proxy_before(server.endpoint_url) as proxy:
        given = {**server.storage_options, "endpoint": proxy.url}
        run = with_sink(server.new_url("lake/rows"), rows.coalesce(1), storage_options=given)
        for _ in range(4):
            proxy.take_requests()
            run()
        return len(proxy.take_requests())


def main() -> None:
    """Measure a large epoch, a small one, and requests."""
    given = options(__doc__)
    count, rounds = (QUICK_ROWS, 3) if given.quick else (ROWS, 7)
    spark = session()
    with scratch(given.directory) as folder:
        large, large_base = compared(folder, trades(spark, count), rounds)
        few = trades(spark, SMALL_ROWS)
        small, small_base = compared(folder, few, rounds * 3)
        requests = requests_of_an_epoch(few)
    baseline = "Spark's Parquet writer, deltalake"
    show(
        "Delta Lake",
        [
            Row(f"{count} rows in an epoch, appended", f"{baseline} ({large_base})", large, 1.15),
            Row(f"{SMALL_ROWS} rows in an epoch", f"{baseline} ({small_base})", small),
            Row("requests to an object store, one file", "-", requests, unit=""),
        ],
    )
    spark.stop()


if __name__ == "__main__":
    main()
