"""The demo's pipeline as its parent sees it: a process that reports events until it ends.

Tests: ``tests/cli/test_demo.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from seamark.cli.demo.folder import LOG
from seamark.errors import SeamarkError
from seamark.pipeline.telemetry.reports import EpochStats, StartReport

_TAIL_LINES: Final = 12


class PipelineProcess:
    """A running pipeline, with its JVM in one process group; leaving the ``with`` ends both."""

    def __init__(self, folder: Path, *, fatal_epoch: int | None = None) -> None:
        self._log = folder / LOG
        arguments = [str(folder)] if fatal_epoch is None else [str(folder), str(fatal_epoch)]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "seamark.cli.demo.pipeline", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._events = self._read_events()
        self.killed_in: int | None = None
        """The epoch in which it said that it would be killed."""

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def recovery(self) -> StartReport:
        """Wait for Spark, and for what the start found in the store."""
        for event in self._events:
            if event["event"] == "recovery":
                fields = event["report"]
                skipped = [
                    (skipped_one["checkpoint_id"], skipped_one["reason"])
                    for skipped_one in fields["skipped"]
                ]
                return StartReport(**{**fields, "skipped": skipped})
        raise self._failure()

    def epochs(self) -> Iterator[EpochStats]:
        """The epochs as they are done, until the process and its JVM have ended."""
        for event in self._events:
            kind = event.pop("event")
            if kind == "killing":
                self.killed_in = event["epoch"]
            elif kind == "epoch":
                yield EpochStats(rows_per_sink=event.pop("rows"), **event)

    def ask_to_stop(self) -> None:
        """Send SIGTERM: it finishes the epoch and ends."""
        self._child.terminate()

    def require_killed(self, epoch: int) -> None:
        """Raise unless it was killed with SIGKILL at the right place in ``epoch``."""
        if self._child.wait() != -signal.SIGKILL or self.killed_in != epoch:
            raise self._failure()

    def require_ended_well(self) -> None:
        """Raise unless its exit code is 0."""
        if self._child.wait() != 0:
            raise self._failure()

    def _read_events(self) -> Iterator[dict[str, Any]]:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            # the JVM shares stdout, so that its end is seen too; what it prints is not for us
            if line.startswith('{"event"'):
                yield json.loads(line)

    def _failure(self) -> SeamarkError:
        code = self._child.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        tail = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return SeamarkError(
            f"the demo's pipeline ended {how}, which was not to happen",
            where="\n".join(["Its log ends with:", *tail] if tail else []),
            hint=f"The whole log: {self._log}",
        )
