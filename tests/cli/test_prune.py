"""Nothing is removed unseen, nothing that is needed, and nothing under a running pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import open_store
from seamark.errors import FencedError
from tests.cli.support.stores import (
    Commands,
    flip,
    interrupt_prune,
    save,
    save_partitioned,
    sidecar,
    stored_manifest,
)


@pytest.fixture
def full_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six checkpoints, none of which builds on another."""
    monkeypatch.chdir(tmp_path)
    with open_store("store") as found:
        for number in range(1, 7):
            save(found, number, is_incremental=False, parent_id=None)
    return Path("store")


def ids(store: Path) -> list[int]:
    with open_store(store) as found:
        return found.list_ids()


def test_it_is_shown_first_with_a_reason_for_each(seamark: Commands, full_ones: Path) -> None:
    seamark("pin", full_ones, 2, "before-upgrade")
    shown = seamark("prune", full_ones, "--keep", 2)
    for told in ("newest valid", "valid no. 2", "pinned: before-upgrade", "older than what"):
        assert told in shown
    assert "Would remove 3" in shown
    assert "The same with --yes does it." in shown
    assert ids(full_ones) == [1, 2, 3, 4, 5, 6]
    with open_store(full_ones) as found:
        assert found.owner().generation == 0  # a look claims nothing


def test_yes_does_what_was_shown(seamark: Commands, full_ones: Path) -> None:
    planned = seamark.json("prune", full_ones, "--keep", 2)
    assert [row["id"] for row in planned["remove"]] == [4, 3, 2, 1]
    assert planned["done"] is False
    assert "Removed 4" in seamark("prune", full_ones, "--keep", 2, "--yes")
    assert ids(full_ones) == [5, 6]
    assert "Nothing to remove; 2 kept." in seamark("prune", full_ones, "--keep", 2, "--yes")
    with open_store(full_ones) as found:
        assert found.owner().released  # whoever comes next is not kept out
        found.claim()
        assert found.next_id() == 7  # and no id was used up by it


def test_what_a_kept_one_builds_on_stays(seamark: Commands, store: Path) -> None:
    found = seamark.json("prune", store, "--keep", 1, "--yes")
    assert found["remove"] == []
    assert {row["reason"] for row in found["keep"]} == {"newest valid", "needed by 4"}
    assert ids(store) == [1, 2, 3, 4]


def test_a_time_span_keeps_all_that_is_younger(seamark: Commands, full_ones: Path) -> None:
    assert seamark.json("prune", full_ones, "--keep-within", "7d")["remove"] == []
    assert len(seamark.json("prune", full_ones, "--keep-within", "0s")["remove"]) == 5


def test_a_running_pipeline_is_neither_pruned_nor_stopped(
    seamark: Commands, full_ones: Path
) -> None:
    with open_store(full_ones) as running:
        running.claim(writer="driver-1")
        seamark("prune", full_ones, "--keep", 2)  # a look is free
        running.check_claim()
        seamark("prune", full_ones, "--keep", 2, "--yes", code=5)
        told = " ".join(seamark.err.split())
        assert "a writer may be using this store, so nothing was removed" in told
        assert "driver-1" in told
        assert "--take-over" in told
        running.check_claim()
        assert ids(full_ones) == [1, 2, 3, 4, 5, 6]
        seamark("prune", full_ones, "--keep", 2, "--yes", "--take-over")
        with pytest.raises(FencedError):
            running.check_claim()
    assert ids(full_ones) == [5, 6]


def test_a_writer_that_died_is_in_nobody_s_way(seamark: Commands, full_ones: Path) -> None:
    with open_store(full_ones) as dead:
        dead.claim()
        (full_ones / "locks").rename("elsewhere")  # as a reboot leaves it: no lock is held
        assert "Removed 4" in seamark("prune", full_ones, "--keep", 2, "--yes")
        Path("elsewhere").rename(full_ones / "locks2")


def test_partitioned_state_goes_with_its_checkpoint(seamark: Commands, full_ones: Path) -> None:
    old, new = save_partitioned(full_ones, 7), save_partitioned(full_ones, 8)
    seamark("prune", full_ones, "--keep", 1, "--yes")
    assert not (full_ones / old).exists()
    assert (full_ones / new).exists()
    seamark("verify", full_ones, "--read-data")


def test_partitioned_state_is_left_when_nobody_knows_who_needs_it(
    seamark: Commands, full_ones: Path
) -> None:
    old = save_partitioned(full_ones, 7)
    with open_store(full_ones) as found:
        save(found, 8, is_incremental=False, parent_id=None)
        save(found, 9, is_incremental=False, parent_id=None)
    flip(stored_manifest(full_ones, 9))
    shown = " ".join(seamark("prune", full_ones, "--keep", 1, "--yes").split())
    assert "warning: partitioned state was left alone" in shown
    assert "damaged, but newer than one that is kept" in shown
    assert (full_ones / old).exists()


@pytest.mark.parametrize(
    "words",
    [(), ("--keep", "0"), ("--keep", "x"), ("--keep-within", "7"), ("--keep-within", "a week")],
)
def test_a_rule_that_is_none_is_a_usage_error(
    seamark: Commands, full_ones: Path, words: tuple[str, ...]
) -> None:
    seamark("prune", full_ones, *words, "--yes", code=2)
    assert ids(full_ones) == [1, 2, 3, 4, 5, 6]


def test_what_a_prune_that_was_killed_left_behind_is_shown_and_removed(
    seamark: Commands, store: Path
) -> None:
    interrupt_prune(store)
    stored_manifest(store, 2).unlink()  # it got as far as this
    found = seamark.json("prune", store, "--keep", 2)
    assert [row["id"] for row in found["remove"]] == [4, 3, 2, 1]
    assert {row["reason"] for row in found["remove"]} == {"left by a prune that was interrupted"}
    assert "Removed 4" in seamark("prune", store, "--keep", 2, "--yes")
    assert not any(sidecar(store, i).exists() for i in (1, 2, 3, 4))
    assert ids(store) == [5, 6]
    assert "Nothing to remove" in seamark("prune", store, "--keep", 2)
