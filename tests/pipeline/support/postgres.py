"""A pipeline into two tables of PostgreSQL and a folder, in processes that hang or are killed.

``python -m tests.pipeline.support.postgres BASE DSN [stop|kill STEP WHEN EPOCH]``: runs all that is
in ``BASE/in``. At the given point the process stops itself and its JVM, or kills itself; ``stop
commit inside EPOCH`` is when the epoch is in the ledger and its transaction is open. It leaves
``BASE/started`` when it is about to run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.errors import SeamarkError
from seamark.pipeline.declaration.settings import OnStep, Step
from seamark.sinks import FileSink, PostgresSink, Receipt
from seamark.sinks.postgres.ledger import Ledger
from seamark.testing.crashes import FailPoint, KillHere
from tests.pipeline.support.driver import session, stop_at
from tests.sinks.support.postgres import rows_of, run

TABLES = (
    "CREATE TABLE trades (k int, v int, at_epoch bigint)",
    "CREATE TABLE sums (k int PRIMARY KEY, trades bigint NOT NULL, total bigint)",
)


def make_tables(dsn: str) -> None:
    run(dsn, *TABLES)


def pipeline(
    spark: SparkSession, base: Path, dsn: str, on_step: OnStep | None = None
) -> seamark.Pipeline:
    """All rows appended, their sums upserted, and all rows in files."""
    made = seamark.Pipeline("postgres", base / "store", output_mode="update", on_step=on_step)
    trades = made.source(
        "trades",
        spark.readStream.schema("k int, v int, t timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(str(base / "in")),
    )
    sums = trades.groupBy("k").agg(f.count("*").alias("trades"), f.sum("v").alias("total"))
    made.sink("sums", sums, PostgresSink(dsn, "sums", mode="upsert", keys="k"))
    rows = trades.select("k", "v")
    made.sink("trades", rows, PostgresSink(dsn, "trades", epoch_column="at_epoch"))
    made.sink("files", rows, FileSink(base / "files"))
    return made


def shown(dsn: str) -> Counter[tuple[object, ...]]:
    return Counter(rows_of(dsn, "SELECT k, v FROM trades"))


def sums(dsn: str) -> dict[int, tuple[int, int]]:
    return {k: (n, total) for k, n, total in rows_of(dsn, "SELECT k, trades, total FROM sums")}


def sums_of(rows: Counter[tuple[object, ...]]) -> dict[int, tuple[int, int]]:
    """What the sums of these rows are, computed by hand."""
    expected: dict[int, tuple[int, int]] = {}
    for (k, v), times in rows.items():
        assert isinstance(k, int)
        assert isinstance(v, int)
        n, total = expected.get(k, (0, 0))
        expected[k] = (n + times, total + v * times)
    return expected


def leftovers(dsn: str) -> list[str]:
    """Staging tables of all outputs."""
    query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '\\_seamark%'"
    return [name for (name,) in rows_of(dsn, query)]


def start(base: Path, dsn: str, *point: str) -> subprocess.Popen[str]:
    """A process of its own."""
    (base / "started").unlink(missing_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.support.postgres", str(base), dsn, *point],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def call_inside_commit(hook: Callable[[Any, str, int], None]) -> None:
    """Have the hook called once, in the transaction that shows an epoch of ``trades``."""
    enter = Ledger.enter

    def entered(ledger: Ledger, connection: Any, receipt: Receipt, *more: Any) -> bool:
        is_new = enter(ledger, connection, receipt, *more)
        if receipt.sink == "trades":
            hook(Step.COMMIT, "inside", receipt.epoch)
        return is_new

    Ledger.enter = entered  # type: ignore[method-assign,assignment]


def main(base: Path, dsn: str, *point: str) -> int:
    spark = session()
    hook: OnStep | None = None
    if point:
        how, step, when, epoch = point
        if how == "stop":
            hook = stop_at(spark, base, (step, when, int(epoch)))
            call_inside_commit(cast("Any", hook))
        else:
            hook = KillHere(FailPoint.parse(f"{step}:{when}:{epoch}"), base / "marker")
    (base / "started").write_text(str(os.getpid()))
    try:
        pipeline(spark, base, dsn, hook).run()
    except SeamarkError as error:
        print(f"{type(error).__name__}: {error.what}", flush=True)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], *sys.argv[3:]))
