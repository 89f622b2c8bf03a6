"""A driver process that writes an Iceberg table, and may hang inside a commit.

``python -m tests.sinks.support.iceberg_driver BASE [before|after EPOCH]``: runs all that is in
``BASE/in``. Before or after the request that commits an epoch to the catalog, it stops itself and
its JVM until it is continued and ``BASE/resumed`` exists.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

import seamark
from seamark.errors import SeamarkError
from seamark.sinks import IcebergSink
from tests.pipeline.support.driver import hang, session
from tests.sinks.support.iceberg import TABLE, properties


class Hanging:
    """Hangs in the commit of one epoch, where a test cannot reach by a step of the pipeline."""

    def __init__(self, spark: Any, base: Path, when: str, epoch: int) -> None:
        self._spark, self._base, self._when, self._epoch = spark, base, when, epoch
        self._is_due = False
        commit = SqlCatalog.commit_table

        def hanging(*given: Any) -> Any:
            self._maybe("before")
            done = commit(*given)
            self._maybe("after")
            return done

        vars_of: Any = SqlCatalog
        vars_of.commit_table = hanging

    def on_step(self, step: Any, when: str, epoch: int) -> None:
        self._is_due = (step.value, when, epoch) == ("commit", "before", self._epoch)

    def _maybe(self, when: str) -> None:
        if self._is_due and when == self._when:
            self._is_due = False
            hang(self._spark, self._base)


def main(base: Path, *point: str) -> int:
    spark = session()
    hook = Hanging(spark, base, point[0], int(point[1])).on_step if point else None
    made = seamark.Pipeline("iceberg", base / "store", on_step=hook)
    reader = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1)
    rows = made.source("rows", reader.json(str(base / "in")))
    made.sink("rows", rows, IcebergSink(properties(base), TABLE))
    try:
        made.run()
    except SeamarkError as error:
        print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
