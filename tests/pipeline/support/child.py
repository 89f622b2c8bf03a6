"""A process that runs one of the workloads and dies where it is told to.

``child.py KIND PROVIDER INPUT ROOT``. ``SEAMARK_FAIL_POINT`` is a point such as ``save:after:3``,
or ``commit:between:3``: after the first sink has committed and before the second. Below ROOT it
leaves ``jvm.pid`` when it is about to start, ``marker`` when it dies, ``done`` when it ends.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from seamark.sinks import Committable, FileSink
from seamark.spark.java import use_java
from seamark.testing.crashes import die, kill_at
from tests.pipeline.support import views, workloads

FAIL_POINT: Final = "SEAMARK_FAIL_POINT"
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
