"""Links, pipes and devices inside a store: refused by their names, never followed, never read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark import open_store
from seamark.errors import DamageError, StoreUnavailableError
from seamark.sinks.target_checks import claim_folder
from seamark.store import CheckpointStore
from seamark.store.copy.run import copy_checkpoints
from tests.checkpoint_dir.support.directories import make_copy
from tests.store.support.copies import save

MANIFEST = "checkpoints/checkpoint_000001/manifest.json"
SIDECAR = "checkpoints/checkpoint_000001/state.bin"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="orders")
        for checkpoint_id in (1, 2, 3):
            save(store, checkpoint_id, partitioned=True)
    return tmp_path


def _moved_away(place: Path, name: str) -> Path:
    """Put a file or folder of the store elsewhere, and a link to it in its place."""
    there = place / "elsewhere"
    os.rename(place / "store" / name, there)
    (place / "store" / name).symlink_to(there)
    return there


def _listed(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


LINKED = ["checkpoints", "checkpoints/checkpoint_000001", MANIFEST, SIDECAR, "state", "owner.json"]


@pytest.mark.parametrize("name", LINKED)
def test_nothing_is_read_or_copied_through_a_link(place: Path, name: str) -> None:
    _moved_away(place, name)
    with open_store(place / "store") as store, open_store(place / "other") as other:
        with pytest.raises(StoreUnavailableError, match="is a link"):
            copy_checkpoints(store, other)
        assert other.list_ids() == []


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/checkpoint_000001", "state"])
def test_a_prune_removes_nothing_through_a_linked_folder(place: Path, name: str) -> None:
    there = _moved_away(place, name)
    before = _listed(there)
    keys = ["state/x/manifest.json", MANIFEST, SIDECAR]
    with open_store(place / "store") as store:
        with pytest.raises(StoreUnavailableError, match="is a link"):
            store.backend.delete(keys)
        with pytest.raises(StoreUnavailableError, match="is a link"):
            store.cleanup_orphans(min_age=0)
        if name != "state":
            with pytest.raises(StoreUnavailableError, match="is a link"):
                store.prune(1)
    assert _listed(there) == before


def test_a_link_is_no_proof_of_damage(place: Path) -> None:
    """Recovery stops there: the newest checkpoint may well be whole behind it."""
    _moved_away(place, "checkpoints/checkpoint_000003/state.bin")
    with open_store(place / "store") as store, pytest.raises(StoreUnavailableError):
        store.recover_latest_validated()


def test_the_root_of_a_store_may_be_a_link(place: Path) -> None:
    (place / "link").symlink_to("store")
    with open_store(place / "link") as store:
        assert store.list_ids() == [1, 2, 3]
        save(store, 4)
        assert store.prune(1) == 3


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("make", [_pipe, _socket])
@pytest.mark.parametrize("name", [MANIFEST, SIDECAR])
def test_a_pipe_or_a_socket_in_the_place_of_a_file_is_damage(
    place: Path, name: str, make: Callable[[Path], None]
) -> None:
    (place / "store" / name).unlink()
    make(place / "store" / name)

    def use(store: CheckpointStore) -> None:
        store.load_by_id(1)
        store.load_state_data(1)

    with open_store(place / "store") as store, pytest.raises(DamageError, match="regular file"):
        use(store)


def test_a_lock_that_leads_elsewhere_makes_no_file_there(place: Path) -> None:
    lock = place / "store/locks/writers.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.unlink(missing_ok=True)
    lock.symlink_to(place / "victim")
    with open_store(place / "store") as store, pytest.raises(StoreUnavailableError, match="link"):
        store.claim()
    assert not (place / "victim").exists()


# modes


def test_everything_that_is_made_honours_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with open_store(tmp_path / "store") as store:
            store.claim(pipeline="orders")
            save(store, 1, partitioned=True)
        make_copy(tmp_path / "ck", 2)
        claim_folder(str(tmp_path / "rows"), "orders", "sums", "json", ())
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path != tmp_path]
    assert len(made) > 20
    assert [path for path in made if path.stat().st_mode & 0o077] == []
