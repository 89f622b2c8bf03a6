"""A process that runs one of the workloads and dies where it is told to.

``child.py KIND PROVIDER INPUT ROOT``. ``SEAMARK_FAIL_POINT`` is a point such as ``save:after:3``,
or ``commit:between:3``: after the first sink has committed and before the second. Below ROOT it
leaves ``jvm.pid`` when it is about to start, ``marker`` when it dies, ``done`` when it ends. With
``SEAMARK_WAIT_FOR_MOVES`` epoch 5 waits until a snapshot of Spark's was stored.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import SparkSession

from seamark.capture import state_moves
from seamark.capture.file_index import FileIndex
from seamark.capture.state_moves import BackgroundMoves
from seamark.checkpoint_dir.state_files import parse_state_file
from seamark.pipeline.declaration.settings import OnStep, Step
from seamark.sinks import Committable, FileSink
from seamark.spark.java import use_java
from seamark.testing.crashes import die, kill_at
from tests.pipeline.support import views, workloads

FAIL_POINT: Final = "SEAMARK_FAIL_POINT"
WAIT_FOR_MOVES: Final = "SEAMARK_WAIT_FOR_MOVES"
BETWEEN: Final = "commit:between:"


def session() -> SparkSession:
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Spark's maintenance writes snapshots and removes old files while the epochs run
        "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def dying_between_commits(root: Path, epoch: int) -> None:
    """Have the second sink die when it is to commit and the first one shows the epoch."""
    commit = FileSink.commit

    def commit_or_die(sink: FileSink, committable: Committable) -> None:
        if Path(sink.path).name == "large" and committable["epoch"] == epoch:
            first = root / "main" / str(committable["target"])
            while not first.exists():
                time.sleep(0.001)
            die(f"reached {BETWEEN}{epoch}", root / "marker")
        commit(sink, committable)

    FileSink.commit = commit_or_die  # type: ignore[method-assign,assignment]


def has_base(index: FileIndex) -> bool:
    """Whether the state of a store begins with a snapshot that came from the background."""
    files = (parse_state_file(path.rpartition("/")[2]) for path in index.files)
    return any(file is not None and file.is_snapshot and file.version > 2 for file in files)


def waiting_for_moves(on_step: OnStep | None) -> OnStep:
    """Wait until the background has stored a snapshot, for this epoch or for the next one."""
    running: list[BackgroundMoves] = []
    begin = BackgroundMoves.__init__

    def noted(moves: BackgroundMoves, *args: Any, **options: Any) -> None:
        begin(moves, *args, **options)
        running.append(moves)

    BackgroundMoves.__init__ = noted  # type: ignore[method-assign,assignment]
    state_moves._LOOK_EVERY = 0.05  # type: ignore[misc]

    def step(step: Step, when: Literal["before", "after"], epoch: int) -> None:
        if (step, when, epoch) == (Step.RETAIN, "after", 5):
            while not (running[-1]._arrived or has_base(running[-1]._index)):
                time.sleep(0.02)
        if on_step is not None:
            on_step(step, when, epoch)

    return step


def main() -> None:
    kind, provider, folder, root = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    options: dict[str, Any] = {}
    point = os.environ.get(FAIL_POINT, "")
    if point.startswith(BETWEEN):
        dying_between_commits(root, int(point.removeprefix(BETWEEN)))
    elif point:
        step, when, epoch = point.split(":")
        assert when in ("before", "after")
        hook = kill_at(step, "after" if when == "after" else "before", int(epoch), root / "marker")
        options["on_step"] = hook
    if os.environ.get(WAIT_FOR_MOVES):
        options["on_step"] = waiting_for_moves(options.get("on_step"))
    spark = session()
    jvm: Any = spark.sparkContext._jvm
    jvm_pid = jvm.java.lang.ProcessHandle.current().pid()
    (root / "jvm.pid.tmp").write_text(str(jvm_pid), encoding="utf-8")
    (root / "jvm.pid.tmp").rename(root / "jvm.pid")
    if kind in ("views", "whole-view"):
        views.run(spark, folder, root, kind=kind, **options)
    else:
        workloads.run(spark, kind, provider, folder, root, **options)
    (root / "done").touch()
    spark.stop()


if __name__ == "__main__":
    main()
