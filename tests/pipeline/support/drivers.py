"""Starting driver processes on a small input, and what their sinks show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds

FILES = 5
ROWS = 40


def write_input(folder: Path) -> Counter[tuple[object, ...]]:
    folder.mkdir(parents=True)
    rows: list[tuple[object, ...]] = []
    for number in range(FILES):
        lines = []
        for row in range(ROWS):
            rows.append((row % 5, number * ROWS + row))
            time_of_row = f"2026-01-01 00:{number:02}:{row:02}"
            lines.append({"k": row % 5, "v": number * ROWS + row, "t": time_of_row})
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
        time.sleep(0.02)
    return Counter(rows)


def visible(folder: Path) -> Counter[tuple[object, ...]]:
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    names = [name for name in table.column_names if name != "epoch"]
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


def start(base: Path, *point: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.support.driver", str(base), *point],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Wait until a driver has made a file."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, f"it ended before {path.name}"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_stopped(pid: int, seconds: float = 120) -> None:
    """Wait until SIGSTOP has reached every thread of a process."""
    deadline = time.monotonic() + seconds
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def overtaken(
    base: Path, start: Callable[..., subprocess.Popen[str]], *point: str
) -> tuple[int, str]:
    """Have a driver hang at a point, another one do all the work, and the first one wake up.

    Returns how the first one ended, and what it said.
    """
    loser = start(*point)
    pids: list[int] = []
    try:
        wait_for(base / "stopped", loser, 280)
        pids = [int(pid) for pid in (base / "stopped").read_text().split()]
        for pid in pids:
            wait_until_stopped(pid)
        winner = start()
        said, _ = winner.communicate(timeout=280)
        assert winner.returncode == 0, said
        (base / "resumed").touch()
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        said, _ = loser.communicate(timeout=280)
    finally:
        for pid in pids:
            if loser.poll() is None:
                os.kill(pid, signal.SIGKILL)
        loser.communicate(timeout=280)
    return loser.returncode, said


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        return ""
