"""State that is moved, read and removed in the background is never missed by an epoch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.capture.support.random_runs import RandomRuns, everything_often
from tests.conftest import SEED


def run_often(root: Path, runs: int, lane: int) -> None:
    """I3, I6 and I9 hold after each of that many runs, whatever the dice say."""
    seed = int(os.environ[SEED])
    random_runs = RandomRuns(root, seed + (lane << 40))
    with everything_often():
        for number in range(runs):
            try:
                random_runs.run()
            except BaseException as error:
                error.add_note(f"run {number}: repeat with {SEED}={seed} ({lane=})")
                raise
    print(f"{SEED}={seed}: {dict(random_runs.counted)}")  # noqa: T201 - shown by -rP
    assert random_runs.counted["saved"] > runs


@pytest.mark.slow
def test_a_few_runs_beside_a_busy_background_restore_what_was_written(tmp_path: Path) -> None:
    run_often(tmp_path, 8, 0)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("lane", [1, 2])
def test_many_runs_beside_a_busy_background_restore_what_was_written(
    tmp_path: Path, lane: int
) -> None:
    run_often(tmp_path, 100, lane)
