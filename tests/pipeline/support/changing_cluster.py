"""Drivers of a pipeline that changes, on one cluster, and what has to be true of them all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seamark import open_store
from tests.pipeline.support.changing import NEW, OUTPUTS, checkpoints, lives, shown
from tests.pipeline.support.cluster import Cluster
from tests.pipeline.support.pauses import wait_for_pause
from tests.pipeline.support.upgrades import new_pairs
from tests.pipeline.support.workloads import Shown

_SECONDS = 900.0


class Drivers:
    """Drivers of one pipeline below ``root``, one after the other."""

    def __init__(self, cluster: Cluster, root: Path, working_copy: str, provider: str) -> None:
        self.root = root
        self._cluster = cluster
        self._arguments = [working_copy, provider]

    @contextmanager
    def started(self, *steps: str) -> Iterator[subprocess.Popen[bytes]]:
        """A driver that takes these steps; it is killed in the end."""
        with driver(self._cluster.url, self.root, *self._arguments, *steps) as started:
            yield started

    def run(self, *steps: str) -> dict[str, Any]:
        """What a driver says that has taken these steps."""
        with self.started(*steps) as started:
            return self.finished(started)

    def finished(self, started: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What a driver says, once it has ended."""
        return finished(self.root, started)

    def lose_a_worker(self, started: subprocess.Popen[bytes], point: str) -> None:
        """Kill a worker and its executor when the driver has come to a point; another comes."""
        wait_for_pause(self.root, point, started, _SECONDS)
        self._cluster.kill_worker()
        self._cluster.add_worker()

    def kill(self, started: subprocess.Popen[bytes]) -> None:
        """Kill both processes of a driver: Python and the JVM."""
        os.kill(int((self.root / "jvm").read_text()), signal.SIGKILL)
        started.kill()
        started.wait()


@contextmanager
def driver(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.pipeline.support.changing_driver"]
    started = subprocess.Popen([*command, *map(str, arguments)])
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def finished(root: Path, started: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert started.wait(_SECONDS) == 0
    said: dict[str, Any] = json.loads((root / "result.json").read_text())
    return said


def run_unchanged(root: Path) -> None:
    """Run the pipeline as it was in local mode, without the changes, in a process of its own."""
    with driver("local[2]", root, root / "shared", "hdfs", "unchanged") as started:
        finished(root, started)


def require_as_if_unchanged(root: Path, expected: Shown) -> None:
    """Every output shows what it has to, and every checkpoint is whole."""
    found = shown(root)
    assert all(expected.values()), "a sink without rows proves nothing"
    assert {name: found[name] for name in OUTPUTS} == expected
    upgrades = [each for each in checkpoints(root) if each.upgrade is not None]
    assert [each.state_partitions for each in upgrades] == [7, 3]
    seen = lives(len(list((root / "all" / "orders").iterdir())))[1].files
    assert found[NEW] == new_pairs(root / "all", seen)
    with open_store(root / "shop" / "store") as store:
        assert all(store.validate_checkpoint(each).valid for each in store.list_ids())


def require_fork(root: Path, origin: int, unchanged: Path) -> None:
    """A fork shows all that comes after the epoch in which it began."""
    found = shown(root, "fork")
    later = shown(unchanged, after=origin)
    assert {name: found[name] for name in OUTPUTS} == later


def require_equal_replays(said: dict[str, Any]) -> None:
    """Every epoch was run again, and each output had the rows that it has recorded."""
    epochs = said["epochs"]
    assert epochs
    for epoch, again in epochs.items():
        assert again.get("is_equal"), (epoch, again)
        assert "not compared" not in again["text"], (epoch, again)


def require_elsewhere(root: Path, said: dict[str, Any], *steps: str) -> None:
    """In each step tasks ran, all of them in other processes than the driver."""
    ran = list(_tasks(root / "events"))
    for step in steps:
        began, ended = said[step]["began"], said[step]["ended"]
        where = [executor for at, executor in ran if began <= at <= ended]
        assert where, f"no task of {step}"
        assert "driver" not in where
        readers = {pid for _, pid in said[step].get("read_by", [])}
        assert said[step]["pid"] not in readers
        assert not said[step].get("fell_back")


def _tasks(events: Path) -> Iterator[tuple[int, str]]:
    """When each task ended and by which executor; the last line of a killed driver may be cut."""
    for log in events.iterdir():
        for line in log.read_text().splitlines():
            if line.startswith('{"Event":"SparkListenerTaskEnd"') and line.endswith("}"):
                info = json.loads(line)["Task Info"]
                yield int(info["Finish Time"]), str(info["Executor ID"])
