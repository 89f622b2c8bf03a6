"""A standalone Spark cluster on loopback, made of the installed pyspark's own programs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from seamark.spark.java import java_home
from tests.support.spark_classes import spark_java_options

_READY = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """One master and some workers with a core each."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        self._run(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"),
        )
        self._wait_for("master", "New state: ALIVE")
        for _ in range(workers):
            self.add_worker()
        for number in range(workers):
            self._wait_for(f"worker{number}", "Successfully registered")

    def add_worker(self) -> None:
        """Start one more worker, with a work directory of its own. Does not wait for it."""
        number = len(self.workers)
        worker = self._run(
            f"worker{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"),
            *("--work-dir", str(self._folder / f"work{number}"), self.url),
        )
        self.workers.append(worker)

    def kill_worker(self) -> None:
        """Kill the oldest worker that is there (SIGKILL); its executor ends with it."""
        worker = next(each for each in self.workers if each.poll() is None)
        worker.kill()
        worker.wait()

    def _run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            **self._environment,
            "SPARK_DAEMON_JAVA_OPTS": spark_java_options(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home()),
        }
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self._processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait_for(self, name: str, text: str) -> None:
        deadline = time.monotonic() + _READY
        while not re.search(text, self._log(name).read_text(errors="replace")):
            assert time.monotonic() < deadline, self._log(name).read_text(errors="replace")[-2000:]
            time.sleep(0.2)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@contextmanager
def standalone_cluster(
    folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Start one, and stop it in all cases. Executors inherit ``environment`` of their workers."""
    folder.mkdir(parents=True)
    cluster = Cluster(folder, environment or {})
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
