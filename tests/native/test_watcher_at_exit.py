"""A program that ends without a word to its watchers neither hangs nor loses its last batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.support.growing import GrowingDirectory, batches_restored_from

PATIENCE = 280.0


@pytest.fixture
def growing(tmp_path: Path) -> GrowingDirectory:
    return GrowingDirectory(tmp_path / "directory").run_batches(1)


def test_a_program_that_just_ends_still_stores_its_last_batch(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    growing.run_batches(7)
    code = "import sys, seamark; seamark.protect(sys.argv[1], sys.argv[2], every=60.0)"
    done = run_program(code, growing.root, tmp_path / "store")
    assert (done.returncode, done.stderr) == (0, "")
    assert batches_restored_from(tmp_path / "store", tmp_path) == [7]


def test_a_program_that_ends_does_not_wait_for_ever(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    code = (
        "import sys, threading\n"
        "from seamark.native import watcher\n"
        "from seamark.checkpoint_dir.places.local import LocalDirectory\n"
        "class Stuck(LocalDirectory):\n"
        "    def listing(self):\n"
        "        threading.Event().wait()\n"
        "watcher._PATIENCE_AT_EXIT = 0.1\n"
        "watcher.Watcher(Stuck(sys.argv[1]), sys.argv[2]).start()\n"
    )
    done = run_program(code, growing.root, tmp_path / "store")
    assert done.returncode == 0
    assert "no last checkpoint" in done.stderr


def run_program(code: str, *args: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
