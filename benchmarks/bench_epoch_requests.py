"""How many requests and objects one epoch costs on an object store, counted against a real server.

A stateful pipeline with 200 state partitions. Stock Spark on the same store would write one file
for each partition, an offset and a commit.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import seamark
from bench_epochs import totals, trades
from bench_requests import REQUESTS, counting
from harness import Row, options, scratch, show
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink
from tests.integration.support.object_server import versitygw_or_moto
from tests.pipeline.support.driver import session

PARTITIONS: Final = 200


def main() -> None:
    """Count the requests between the beginning of an epoch and that of the next."""
    given = options(__doc__)
    epochs = 8 if given.quick else 24
    spark = session()
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    requests: list[int] = []
    objects: list[int] = []
    with versitygw_or_moto() as server, scratch(given.directory) as folder, counting() as recording:

        def note(step: Step, when: Literal["before", "after"], _: int) -> None:
            if (step, when) != (Step.BEGIN, "before"):
                return
            calls = [call for call in recording.calls if call.name in REQUESTS]
            requests.append(len(calls))
            objects.append(sum(call.name == "put" for call in calls))

        pipeline = seamark.Pipeline(
            "bench",
            server.new_url("pipeline"),
            storage_options=server.storage_options,
            working_copy=folder / "working",
            output_mode="update",
            on_step=note,
        )
        rows = pipeline.source("trades", trades(spark))
        pipeline.sink("totals", totals(rows), FileSink(Path(folder) / "out"))
        run = pipeline.start()
        while len(requests) < epochs:
            run.await_termination(0.2)
        run.stop()
    each = [b - a for a, b in pairwise(requests[1:])]
    puts = [b - a for a, b in pairwise(objects[1:])]
    show(
        f"One epoch with {PARTITIONS} state partitions on an object store",
        [
            Row("requests, median", "-", statistics.median(each), 7, ""),
            Row("requests, at most (a full checkpoint that prunes)", "-", max(each), None, ""),
            Row("objects written, median", "-", statistics.median(puts), 3, ""),
        ],
    )
    spark.stop()


if __name__ == "__main__":
    main()
