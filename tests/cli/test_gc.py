"""Only what is left over goes, and only when it is old enough."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from seamark import open_store
from seamark.errors import FencedError
from seamark.state import CheckpointId
from seamark.store.references import STATE_PREFIX
from tests.cli.support.stores import Commands, interrupt_prune, save_partitioned, sidecar
from tests.store.support.scenarios import plan

LAMINAR = Path(__file__).parent.parent / "fixtures" / "laminar"


def leave_orphans(store: Path) -> tuple[Path, Path]:
    """A sidecar without a manifest and a temporary file, both two hours old."""
    with open_store(store) as found:
        found.save_state_data(9, [b"x" * 5000])
    unfinished = store / "tmp/1-0123456789abcdef"
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


def test_the_plan_of_an_epoch_goes_when_no_start_needs_it(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        found.claim()
        timeline, newest = found.owner().timeline, max(epoch for _, epoch in found.list())
        left, begun = plan("0" * 32, 1), plan(timeline, newest + 1)
        for each in (left, begun):
            found.plans.keep(each)
    gone = seamark.json("gc", store, "--min-age", "0s", "--yes")["remove"]
    assert [row["key"] for row in gone] == [f"plans/{'0' * 32}-000001.json"]
    assert "plan of an epoch" in gone[0]["reason"]
    with open_store(store) as found:
        assert found.plans.read(timeline, newest + 1) == begun


def test_what_is_young_may_be_a_save_in_flight(seamark: Commands, store: Path) -> None:
    orphan, unfinished = leave_orphans(store)
    assert seamark.json("gc", store, "--min-age", "3h", "--yes")["remove"] == []
    os.utime(orphan)
    found = seamark.json("gc", store, "--yes")
    assert [row["key"] for row in found["remove"]] == ["tmp/1-0123456789abcdef"]
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
        states = found.partitioned_state
        old = CheckpointId.before(time.time() - 7200)
        with states.begin(1, checkpoint_id=old) as writer:
            writer.put("agg", 0, b"x" * 1000)
            writer.commit()
    os.utime(store / STATE_PREFIX / str(old) / "manifest.json", (time.time() - 7200,) * 2)
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


def test_what_is_not_a_store_loses_nothing_and_does_not_become_one(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = [Path("proj") / name for name in ("tmp/sub/thesis.txt", "probe/satellite.dat")]
    own.append(Path("proj/tmp/1-0123456789abcdef"))  # by its name it could be ours
    for file in own:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    for words in ((), ("--yes",), ("--yes", "--take-over")):
        seamark("gc", "proj", "--min-age", "0s", *words, code=4)
        assert "not a store" in seamark.err
    seamark("prune", "proj", "--keep", 1, "--yes", "--take-over", code=4)
    assert sorted(f for f in Path("proj").rglob("*") if f.is_file()) == sorted(own)


def test_files_of_others_in_a_store_are_left_alone(seamark: Commands, store: Path) -> None:
    names = ("tmp/sub/thesis.txt", "tmp/notes", "probe/satellite.dat", "probe/sub/x", "locks/mine")
    for name in names:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("mine")
    assert seamark.json("gc", store, "--min-age", "0s", "--yes")["remove"] == []
    assert all((store / name).exists() for name in names)


def test_what_a_doctor_that_was_killed_has_left_goes(seamark: Commands, store: Path) -> None:
    probe = store / f"probe/{'a' * 32}/locks/writers.lock"
    mark = store / f"locks/doctor-{'b' * 32}.lock"
    for file in (probe, mark):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = seamark.json("gc", store, "--min-age", "0s", "--yes")
    assert {row["reason"] for row in found["remove"]} == {"a probe of the store"}
    assert not probe.exists()
    assert not mark.exists()


def test_partitioned_state_is_left_as_long_as_it_is_young(seamark: Commands, store: Path) -> None:
    with open_store(store) as found, found.partitioned_state.begin(9) as writer:
        writer.put("agg", 0, b"of a snapshot in flight")
        young = store / STATE_PREFIX / str(writer.commit().checkpoint_id)
    save_partitioned(store, 5)  # newer, and pointed at
    assert seamark.json("gc", store, "--yes")["remove"] == []
    assert young.exists()
    assert len(seamark.json("gc", store, "--yes", "--min-age", "0s")["remove"]) == 1
    assert not young.exists()


def test_what_a_prune_that_was_killed_left_behind_goes(seamark: Commands, store: Path) -> None:
    interrupt_prune(store)
    found = seamark.json("gc", store, "--min-age", "0s", "--yes")
    assert {row["key"] for row in found["remove"]} == {
        f"checkpoints/checkpoint_{i:06}/{name}"
        for i in (1, 2, 3, 4)
        for name in ("manifest.json", "state.bin")
    }
    assert found["removed"] == 8
    assert not sidecar(store, 1).exists()
    seamark("verify", store, "--read-data")


def test_a_dead_writer_s_claim_is_given_back_though_nothing_is_left_over(
    seamark: Commands, store: Path
) -> None:
    for words in (("gc", store), ("prune", store, "--keep", 9)):
        with open_store(store) as writer:
            writer.claim()
            seamark(*words, "--yes", "--take-over")
            with pytest.raises(FencedError):
                writer.check_claim()
            assert writer.owner().released


@pytest.mark.parametrize("words", [("gc",), ("prune", "--keep", "1"), ("rollback", "1")])
def test_a_directory_of_another_system_needs_to_be_forced(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(LAMINAR / "made/fs-22-mixed", "store")
    (Path("store/tmp")).mkdir()
    Path("store/tmp/1-0123456789abcdef").touch()
    before = {f: f.read_bytes() for f in Path("store").rglob("*") if f.is_file()}
    command, *rest = words
    age = ("--min-age", "0s") if command == "gc" else ()
    seamark(command, "store", *rest, *age)
    seamark(command, "store", *rest, *age, "--yes", code=6)
    assert "--force" in seamark.err
    assert {f: f.read_bytes() for f in Path("store").rglob("*") if f.is_file()} == before
    seamark(command, "store", *rest, *age, "--yes", "--force")
    assert Path("store/owner.json").exists()
