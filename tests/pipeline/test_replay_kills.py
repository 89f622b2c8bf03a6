"""A replay that is killed has changed nothing, and the pipeline goes on as if it had not been."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.support import drivers
from tests.pipeline.support.replaying import STEPS
from tests.pipeline.support.trees import tree_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.chaos
@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_killed_replay_leaves_store_and_sinks_as_they_were(tmp_path: Path, step: str) -> None:
    rows = drivers.write_input(tmp_path / "in")
    done = drivers.start(tmp_path)
    said, _ = done.communicate(timeout=280)
    assert done.returncode == 0, said
    places = [tmp_path / name for name in ("store", "in", "all", "sums")]
    before = tree_of(*places)
    (tmp_path / "tmp").mkdir()
    replaying = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.support.replaying", str(tmp_path), step],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        text=True,
    )
    try:
        drivers.wait_for(tmp_path / "stopped", replaying, 280)
    finally:
        replaying.kill()
        replaying.wait()
    assert tree_of(*places) == before
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert step == "digest_of" or any(name.startswith("seamark-replay-") for name in left)
    again = drivers.start(tmp_path)
    said, _ = again.communicate(timeout=280)
    assert again.returncode == 0, said
    assert drivers.visible(tmp_path / "all") == rows
