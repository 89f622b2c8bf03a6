"""Only what is left over goes, and only when it is old enough."""

from __future__ import annotations

import os
import time
from pathlib import Path

from seamark import open_store
from seamark.spark.placement import STATE_PREFIX, states_beside
from seamark.state import CheckpointId
from tests.cli.stores import Commands, sidecar


def leave_orphans(store: Path) -> tuple[Path, Path]:
    """A sidecar without a manifest and a temporary file, both two hours old."""
    with open_store(store) as found:
        found.save_state_data(9, [b"x" * 5000])
    unfinished = store / "tmp/1-abc"
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.write_bytes(b"half")
    then = time.time() - 7200
    for file in (sidecar(store, 9), unfinished):
        os.utime(file, (then, then))
    return sidecar(store, 9), unfinished


def test_it_is_shown_first_and_then_done(seamark: Commands, store: Path) -> None:
    orphan, unfinished = leave_orphans(store)
    shown = seamark("gc", store)
    assert "checkpoint_000009/state.bin" in "".join(shown.split())
    assert "an unfinished write" in shown
    assert "2 h ago" in shown
    assert "Would remove 2" in shown
    assert orphan.exists()
    assert unfinished.exists()
    assert "Removed 2" in seamark("gc", store, "--yes")
    assert not orphan.exists()
    assert not unfinished.exists()
    seamark("verify", store, "--read-data")
    assert "Nothing to remove" in seamark("gc", store, "--yes")


def test_what_is_young_may_be_a_save_in_flight(seamark: Commands, store: Path) -> None:
    orphan, unfinished = leave_orphans(store)
    assert seamark.json("gc", store, "--min-age", "3h", "--yes")["remove"] == []
    os.utime(orphan)
    found = seamark.json("gc", store, "--yes")
    assert [row["key"] for row in found["remove"]] == ["tmp/1-abc"]
    assert orphan.exists()
    assert not unfinished.exists()


def test_a_running_pipeline_s_store_is_left_alone(seamark: Commands, store: Path) -> None:
    orphan, _ = leave_orphans(store)
    with open_store(store) as running:
        running.claim()
        seamark("gc", store)
        seamark("gc", store, "--yes", code=5)
        running.check_claim()
        assert orphan.exists()


def test_partitioned_state_without_a_checkpoint_goes_too(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        states = states_beside(found)
        old = CheckpointId.before(time.time() - 7200)
        with states.begin(1, checkpoint_id=old) as writer:
            writer.put("agg", 0, b"x" * 1000)
            writer.commit()
    row = seamark.json("gc", store)["remove"][0]
    assert row["key"] == f"{STATE_PREFIX}{old}/"
    assert row["bytes"] == 1000
    seamark("gc", store, "--yes")
    assert not (store / STATE_PREFIX / str(old)).exists()


def test_objects_of_an_unfinished_state_checkpoint_go_too(seamark: Commands, store: Path) -> None:
    folder = store / STATE_PREFIX / str(CheckpointId.now())
    (folder / "packs").mkdir(parents=True)
    file = folder / "packs/half.lcb"
    file.write_bytes(b"half")
    os.utime(file, (time.time() - 7200,) * 2)
    assert len(seamark.json("gc", store)["remove"]) == 1
    assert "Removed 1" in seamark("gc", store, "--yes")
    assert not file.exists()


def test_damaged_partitioned_state_is_told_and_left(seamark: Commands, store: Path) -> None:
    orphan, _ = leave_orphans(store)
    folder = store / STATE_PREFIX / str(CheckpointId.now())
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(b"{")
    shown = " ".join(seamark("gc", store, "--yes").split())
    assert "warning: partitioned state was left alone" in shown
    assert not orphan.exists()
    assert folder.exists()
