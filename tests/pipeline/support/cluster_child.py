"""The driver of the cluster test: a stateful pipeline whose executors are other processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import seamark
from seamark.capture.executors import ExecutorMover
from tests.pipeline.support.driver import declare, session
from tests.pipeline.support.pauses import pausing_at


def main(master: str, base: Path, *points: str) -> None:
    spark = session(master)
    pipeline = seamark.Pipeline(
        "cluster",
        store=base / "store",
        working_copy=base / "shared",
        on_step=pausing_at(base, points),
    )
    run = declare(pipeline, spark, base).run()
    mover = run._coordinator._capture._mover
    assert isinstance(mover, ExecutorMover)
    (base / "result.json").write_text(
        json.dumps(
            {
                "driver": os.getpid(),
                "read_by": sorted(mover.read_by),
                "fell_back": not mover._is_possible,
                "epoch": run.epoch,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
