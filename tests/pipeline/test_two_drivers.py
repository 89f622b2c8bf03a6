"""I4: of two drivers on one store one is fenced, and the sinks stay exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from seamark.errors import FencedError
from seamark.store import open_store

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_FILES = 5
_ROWS = 40


def write_input(folder: Path) -> Counter[tuple[object, ...]]:
    folder.mkdir(parents=True)
    rows: list[tuple[object, ...]] = []
    for number in range(_FILES):
        lines = []
        for row in range(_ROWS):
            rows.append((row % 5, number * _ROWS + row))
            time_of_row = f"2026-01-01 00:{number:02}:{row:02}"
            lines.append({"k": row % 5, "v": number * _ROWS + row, "t": time_of_row})
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
        time.sleep(0.02)
    return Counter(rows)


def visible(folder: Path) -> Counter[tuple[object, ...]]:
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    names = [name for name in table.column_names if name != "epoch"]
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


def start(base: Path, *point: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.driver", str(base), *point],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "point", [("save", "before", "3"), ("save", "after", "3"), ("commit", "after", "3")]
)
def test_a_driver_that_was_stopped_across_the_takeover_is_told_and_adds_nothing(
    point: tuple[str, str, str], tmp_path: Path
) -> None:
    base = tmp_path / "pipeline"
    expected = write_input(base / "in")
    loser = start(base, *point)
    pids: list[int] = []
    try:
        deadline = time.monotonic() + 120
        while not (base / "stopped").exists() or not (base / "stopped").read_text():
            assert loser.poll() is None, "it ended before the point was reached"
            assert time.monotonic() < deadline
            time.sleep(0.1)
        pids = [int(pid) for pid in (base / "stopped").read_text().split()]
        winner = start(base)
        output, _ = winner.communicate(timeout=120)
        assert winner.returncode == 0, output
        before = {folder: visible(base / folder) for folder in ("all", "sums")}
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        told, _ = loser.communicate(timeout=60)
    finally:
        for pid in pids:
            if loser.poll() is None:
                os.kill(pid, signal.SIGKILL)
        loser.wait(30)
    assert loser.returncode == FencedError.exit_code, told
    assert "belongs to another writer" in told
    assert visible(base / "all") == expected == before["all"]
    assert visible(base / "sums") == before["sums"]
    assert sum(before["sums"].values()) == (_FILES * 4 - 1) * 5
    assert open_store(base / "store").recover_latest_validated().skipped == []
