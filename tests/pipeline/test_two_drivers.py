"""I4: of two drivers on one store one is fenced, and the sinks stay exact."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from seamark.errors import FencedError
from seamark.store import open_store
from tests.pipeline.support.drivers import (
    FILES,
    start,
    visible,
    wait_for,
    wait_until_stopped,
    write_input,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.mark.sampled(1)
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
        wait_for(base / "stopped", loser)
        pids = [int(pid) for pid in (base / "stopped").read_text().split()]
        for pid in pids:  # it stops itself right after it has noted that it will
            wait_until_stopped(pid)
        winner = start(base)
        output, _ = winner.communicate(timeout=280)
        assert winner.returncode == 0, output
        before = {folder: visible(base / folder) for folder in ("all", "sums")}
        (base / "resumed").touch()
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        told, _ = loser.communicate(timeout=280)
    finally:
        for pid in pids:
            if loser.poll() is None:
                os.kill(pid, signal.SIGKILL)
        loser.wait(280)
    assert loser.returncode == FencedError.exit_code, told
    assert "belongs to another writer" in told
    assert visible(base / "all") == expected == before["all"]
    assert visible(base / "sums") == before["sums"]
    assert sum(before["sums"].values()) == (FILES * 4 - 1) * 5
    assert open_store(base / "store").recover_latest_validated().skipped == []
