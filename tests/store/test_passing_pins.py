"""A checkpoint that is being read elsewhere stays; a reader that died keeps nothing for long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seamark import CheckpointManifest, open_store
from seamark.errors import CheckpointNotFoundError
from seamark.store import CheckpointStore
from seamark.store.owner import live_pins
from seamark.store.passing_pins import pinned_while_read


def three_epochs(path: Path) -> CheckpointStore:
    store = open_store(path)
    store.claim(pipeline="trades")
    for epoch in (1, 2, 3):
        store.save(CheckpointManifest.new(epoch, epoch=epoch))
    return store


def test_a_prune_leaves_what_is_being_read_and_nothing_of_the_pin_is_left(tmp_path: Path) -> None:
    owner, reader = three_epochs(tmp_path), open_store(tmp_path)
    before = (tmp_path / "owner.json").read_bytes()
    with pinned_while_read(reader, 1, "fork"):
        owner.prune(1)
        assert owner.list_ids() == [1, 3]
    assert owner.pins() == {}
    owner.prune(1)
    assert owner.list_ids() == [3]
    three = three_epochs(tmp_path / "other")
    before = (tmp_path / "other" / "owner.json").read_bytes()
    with pinned_while_read(three, 1, "fork"):
        pass
    assert (tmp_path / "other" / "owner.json").read_bytes() == before


def test_the_pin_of_a_reader_that_died_ends_by_itself_and_the_next_reader_removes_it(
    tmp_path: Path,
) -> None:
    store = three_epochs(tmp_path)
    store.pin("fork-000000000000", 1, expires_in=0.001)
    store.pin("mine", 1, expires_in=0.001)
    store.pin("fork-111111111111", 2, expires_in=3600)
    while len(live_pins(store.owner())) > 1:
        pass
    with pinned_while_read(store, 3, "fork"):
        assert len(live_pins(store.owner())) == 2
    assert sorted(store.pins()) == ["fork-111111111111", "mine"]


def test_a_long_read_renews_its_pin(tmp_path: Path) -> None:
    store = three_epochs(tmp_path)
    with pinned_while_read(store, 1, "fork", lifetime=0.01) as renew:
        first = next(iter(store.pins().values())).expires_at_ms or 0
        while (next(iter(store.pins().values())).expires_at_ms or 0) == first:
            renew()


def test_what_is_gone_cannot_be_pinned(tmp_path: Path) -> None:
    store = three_epochs(tmp_path)
    store.prune(1)
    with pytest.raises(CheckpointNotFoundError), pinned_while_read(store, 1, "fork"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_that_may_only_be_read_is_read_without_a_pin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    three_epochs(tmp_path).close()
    for folder in (tmp_path, tmp_path / "locks", tmp_path / "tmp"):
        folder.chmod(0o555)
    try:
        with pinned_while_read(open_store(tmp_path), 1, "fork") as renew:
            renew()
    finally:
        for folder in (tmp_path, tmp_path / "locks", tmp_path / "tmp"):
            folder.chmod(0o755)
    assert "without a pin" in caplog.text
