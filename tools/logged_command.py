"""A command whose whole output goes to a log, watched while it runs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

POLL_SECONDS = 0.1
TAIL_LINES = 25


def run_logged(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    watch: Callable[[TextIO], None],
    folder: Path | None = None,
) -> int:
    """Run a command in a folder, add its output to a log, and return its exit code.

    ``watch`` is called again and again, the last time after the end, with what to read the new
    lines from.
    """
    with log.open("ab") as out, log.open(errors="replace") as lines:
        lines.seek(0, 2)
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
        )
        try:
            while True:
                ended = running.poll() is not None
                watch(lines)
                if ended:
                    return running.returncode
                time.sleep(POLL_SECONDS)
        finally:
            if running.poll() is None:
                running.terminate()
                running.wait()


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
