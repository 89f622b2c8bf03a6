"""Starting the child process of :mod:`tests.pipeline.support.child`, and seeing it die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.pipeline.support.child import FAIL_POINT

REPOSITORY: Final = Path(__file__).parents[3]
START_SECONDS: Final = 280.0
DEATH_SECONDS: Final = 10.0


class Child:
    """One run of a workload in a process of its own."""

    def __init__(self, kind: str, provider: str, folder: Path, root: Path, point: str = "") -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        for name in ("jvm.pid", "marker", "done"):
            (root / name).unlink(missing_ok=True)
        path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        self._log = (root / "child.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.support.child", kind, provider, folder, root],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": path, FAIL_POINT: point},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def wait_until_running(self) -> int:
        """Wait until the pipeline is about to start; the JVM's process id."""
        deadline = time.monotonic() + START_SECONDS
        while not (self.root / "jvm.pid").exists():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, f"no JVM after {START_SECONDS:g} s: {self.said()}"
            time.sleep(0.02)
        return int((self.root / "jvm.pid").read_text(encoding="utf-8"))

    def wait_until_killed(self, seconds: float = START_SECONDS) -> None:
        """Wait for the end, which must be a SIGKILL, and for the end of the JVM with it."""
        jvm = self.wait_until_running()
        assert self.process.wait(seconds) == -signal.SIGKILL, self.said()
        deadline = time.monotonic() + DEATH_SECONDS
        while is_alive(jvm):
            assert time.monotonic() < deadline, f"the JVM {jvm} outlived its Python"
            time.sleep(0.02)

    def said(self) -> str:
        """The end of what the process printed."""
        return (self.root / "child.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_SECONDS)
        self._log.close()


@contextmanager
def child(kind: str, provider: str, folder: Path, root: Path, point: str = "") -> Iterator[Child]:
    """A child that is gone at the end."""
    started = Child(kind, provider, folder, root, point)
    try:
        yield started
    finally:
        started.close()


def killed_at(kind: str, provider: str, folder: Path, root: Path, point: str) -> None:
    """Run until the process kills itself at a point, having said so; its JVM dies with it."""
    with child(kind, provider, folder, root, point) as dying:
        dying.wait_until_killed()
        said = (root / "marker").read_text(encoding="utf-8")
        assert said == f"reached {point}\n"


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is only waiting to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
