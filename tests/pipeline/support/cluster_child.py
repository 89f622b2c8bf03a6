"""The driver of the cluster test: a stateful pipeline whose executors are other processes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import seamark
from seamark.capture.readers import ExecutorReader
from seamark.pipeline.declaration.settings import Step
from tests.pipeline.support.driver import declare, session


def main(master: str, base: Path, pause_before: int) -> None:
    spark = session(master)

    def wait_for_the_test(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) == (Step.WRITE, "before", pause_before):
            (base / "paused").touch()
            while not (base / "go").exists():
                time.sleep(0.1)

    pipeline = seamark.Pipeline(
        "cluster",
        store=base / "store",
        working_copy=base / "shared",
        on_step=wait_for_the_test,
    )
    run = declare(pipeline, spark, base).run()
    reader = run._coordinator._capture._reader
    assert isinstance(reader, ExecutorReader)
    (base / "result.json").write_text(
        json.dumps(
            {
                "driver": os.getpid(),
                "read_by": sorted(reader.read_by),
                "fell_back": reader._fallback is not None,
                "epoch": run.epoch,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
