"""Pins keep checkpoints, by names that other commands understand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seamark import open_store
from seamark.manifest import CheckpointManifest
from tests.cli.support.overtaking import after_latest
from tests.cli.support.stores import Commands


def test_a_pin_is_made_and_removed_without_disturbing_the_pipeline(
    seamark: Commands, store: Path
) -> None:
    with open_store(store) as running:
        running.claim()
        assert "pinned as gold" in seamark("pin", store, "latest", "gold")
        assert seamark.json("show", store, "gold")["id"] == 4
        assert "gone from checkpoint 4" in seamark("unpin", store, "gold")
        running.check_claim()
        assert running.pins() == {}


def test_a_pin_can_expire(seamark: Commands, store: Path) -> None:
    made = seamark.json("pin", store, 1, "gold", "--expires", "30d")
    assert made["expires_at_ms"] - made["created_at_ms"] == 30 * 86400 * 1000
    assert " UTC." in seamark("pin", store, 1, "silver", "--expires", "1h")
    seamark("pin", store, 1, "brief", "--expires", "0.01s")
    time.sleep(0.02)
    seamark("show", store, "brief", code=4)


def test_pins_of_nothing_are_refused(seamark: Commands, store: Path) -> None:
    seamark("pin", store, 99, "gold", code=4)
    seamark("pin", store, 1, "gold", "--expires", "soon", code=2)
    seamark("pin", store, 1, "../gold", code=1)
    seamark("unpin", store, "gold", code=4)
    assert "There are: none." in seamark.err


@pytest.mark.parametrize("name", ["latest", "Latest", "12", "٣", "a\x1b[2Jb", "a\nb", "a\u202eb"])
def test_a_name_that_means_something_else_or_hides_something_is_refused(
    seamark: Commands, store: Path, name: str
) -> None:
    seamark("pin", store, 1, name, code=1)
    assert "a pin cannot" in seamark.err
    assert "\x1b" not in seamark.err
    with open_store(store) as found:
        assert found.pins() == {}


def test_a_pin_of_nothing_names_a_command_that_tells_what_there_is(
    seamark: Commands, store: Path
) -> None:
    seamark("pin", store, 99, "gold", code=4)
    assert f"seamark list {store}" in seamark.err
    assert "list_ids" not in seamark.err


def test_a_name_is_not_moved_silently(seamark: Commands, store: Path) -> None:
    seamark("pin", store, 1, "gold")
    seamark("pin", store, 2, "gold", code=6)
    assert seamark.json("unpin", store, "gold")["id"] == 1


def test_the_newest_that_is_pruned_before_it_is_pinned_is_another_one(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on() -> None:
        with open_store(store) as running:
            running.save(CheckpointManifest.new(5, epoch=5))
            running.prune(1)

    after_latest(monkeypatch, go_on)
    assert seamark.json("pin", store, "latest", "gold")["id"] == 5
    with open_store(store) as found:
        assert found.pins()["gold"].checkpoint_id == 5


def test_a_pin_in_an_empty_store_says_that_it_is_empty(seamark: Commands, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    seamark("pin", tmp_path / "empty", "latest", "gold", code=4)
    assert "the store is empty" in seamark.err
