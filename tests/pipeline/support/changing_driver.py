"""The driver of a pipeline on a cluster that is rescaled, upgraded, replayed and forked.

``python -m tests.pipeline.support.changing_driver MASTER ROOT WORKING_COPY PROVIDER STEP…``: a step
is the name of a life, ``replay``, ``fork`` or ``unchanged``. ``STEP@POINT`` waits at a point inside
it for the test. What happened is in ``ROOT/result.json``, which tasks ran where in ``ROOT/events``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from seamark.capture.executors import ExecutorMover
from seamark.errors import SeamarkError
from seamark.native import repartition as native_repartition
from seamark.pipeline.recovery import rescale, upgrade
from seamark.pipeline.replay import replayer, scratch
from tests.pipeline.support.changing import NEW, Changing, Life, checkpoints
from tests.pipeline.support.driver import session, write_document
from tests.pipeline.support.pauses import pause
from tests.pipeline.support.workloads import provider_of

POINTS: Final[dict[str, tuple[Any, str]]] = {
    "restored": (rescale, "repartition"),
    "written": (native_repartition, "_verified"),
    "rewritten": (rescale, "_taken"),
    "stored": (upgrade, "place"),
    "rebuilt": (scratch, "install_plan"),
    "computed": (replayer, "digest_of"),
}
"""By the name of a point: the function before whose first call the driver waits."""


def main(master: str, root: Path, working_copy: str, provider: str, *steps: str) -> None:
    (root / "events").mkdir(exist_ok=True)
    spark = session(
        master,
        {
            "spark.sql.session.timeZone": "UTC",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (root / "events").as_uri(),
        },
    )
    jvm: Any = spark.sparkContext._jvm
    (root / "jvm").write_text(str(int(jvm.java.lang.ProcessHandle.current().pid())))
    changing = Changing(spark, root, {"working_copy": f"{working_copy}/shop"})
    result: dict[str, Any] = {}
    with provider_of(spark, provider):
        for text in steps:
            step, _, point = text.partition("@")
            began = time.time_ns() // 1_000_000
            with waiting_at(root, point):
                found = STEPS[step](changing, working_copy)
            ended = time.time_ns() // 1_000_000
            result[step] = {**found, "pid": os.getpid(), "began": began, "ended": ended}
            write_document(root / "result.json", result)
    spark.stop()


@contextmanager
def waiting_at(root: Path, point: str) -> Iterator[None]:
    """Wait once for the test before a function is called."""
    if not point:
        yield
        return
    target, name = POINTS[point]
    real = getattr(target, name)

    def waits(*args: Any, **kwargs: Any) -> Any:
        pause(root, point)
        return real(*args, **kwargs)

    with mock.patch.object(target, name, waits):
        yield


def _lives(name: str) -> Callable[[Changing, str], dict[str, Any]]:
    def live(changing: Changing, _: str) -> dict[str, Any]:
        life = next(each for each in changing.lives if each.name == name)
        try:
            run = changing.run(life, policy="evolve")
        except SeamarkError as error:
            return {"error": f"{type(error).__name__}: {error}"}
        mover = run._coordinator._capture._mover
        assert isinstance(mover, ExecutorMover)
        return {
            "epoch": run.epoch,
            "read_by": sorted(mover.read_by),
            "fell_back": not mover._is_possible,
            "notes": run.report.notes,
            "working_copy": run.report.working_copy,
        }

    return live


def _replay(changing: Changing, _: str) -> dict[str, Any]:
    """Run every epoch again, by the pipeline of then."""
    decided = checkpoints(changing.root)
    changed = [each.epoch for each in decided if NEW in each.sink_names]
    epochs: dict[int, Any] = {}
    for epoch in range(1, decided[-1].epoch + 1):
        pipeline = changing.pipeline(is_upgraded=bool(changed) and epoch > changed[0])
        try:
            with pipeline.replay(epoch) as again:
                epochs[epoch] = {
                    "is_equal": again.is_equal,
                    "state": again.state.is_equal,
                    "differing": again.state.differing,
                    "text": str(again),
                }
        except SeamarkError as error:
            epochs[epoch] = {"error": f"{type(error).__name__}: {error}"}
    return {"epochs": epochs}


def _fork(changing: Changing, working_copy: str) -> dict[str, Any]:
    """Fork what the first life has left, in other partitions and with the new output."""
    decided = checkpoints(changing.root)
    changed = next(n for n, each in enumerate(decided) if each.upgrade is not None)
    origin = decided[changed - 1]
    place = {
        "name": "fork",
        "fork": f"{changing.root / 'shop' / 'store'}@{origin.checkpoint_id}",
        "working_copy": f"{working_copy}/fork",
    }
    files = changing.lives[-1].files
    run = changing.run(Life("fork", 7, files, is_upgraded=True), policy="evolve", **place)
    return {"epoch": run.epoch, "origin": origin.epoch}


def _unchanged(changing: Changing, _: str) -> dict[str, Any]:
    changing.run_unchanged()
    return {}


STEPS: Final[dict[str, Callable[[Changing, str], dict[str, Any]]]] = {
    **{name: _lives(name) for name in ("begin", "rescale", "upgrade")},
    "replay": _replay,
    "fork": _fork,
    "unchanged": _unchanged,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
