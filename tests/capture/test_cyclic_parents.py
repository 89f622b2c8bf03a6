"""Checkpoints that name each other as parents are damage, and nothing follows them for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark import open_store
from seamark._common.json_documents import seal, unseal
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.cli.app import run
from seamark.errors import DamageError
from seamark.native.restore import restore_directory
from seamark.native.rewind.targets import shared_history
from seamark.native.snapshot import take_snapshot
from seamark.store import CheckpointStore
from seamark.store.copy.plan import plan_copy
from seamark.store.copy.run import copy_checkpoints
from tests.checkpoint_dir.support.directories import make_copy


def _point_at(store: Path, child: int, parent: int) -> None:
    """Make a checkpoint build on another one, with a checksum that fits."""
    file = store / f"checkpoints/checkpoint_{child:06}/manifest.json"
    fields = json.loads(unseal(file.read_bytes())) | {"is_incremental": True, "parent_id": parent}
    file.write_bytes(seal(json.dumps(fields, separators=(",", ":")).encode()))


@pytest.fixture(params=[(1, 2), (1, 1)], ids=["two of each other", "one of itself"])
def cyclic(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    for batches in (2, 3):
        make_copy(tmp_path / "ck", batches)
        with open_store(tmp_path / "store") as store:
            take_snapshot(LocalDirectory(tmp_path / "ck"), store)
    _point_at(tmp_path / "store", *request.param)
    return tmp_path


def _restore(store: CheckpointStore, here: Path) -> None:
    restore_directory(store, 2, LocalDirectory(here / "out"))


def _copy_one(store: CheckpointStore, here: Path) -> None:
    with open_store(here / "other") as target:
        plan_copy(store, target, checkpoint_id=2)


@pytest.mark.parametrize("use", [_restore, _copy_one])
def test_checkpoints_that_are_each_others_parents_end_in_damage(
    use: Callable[[CheckpointStore, Path], None], cyclic: Path
) -> None:
    with open_store(cyclic / "store") as store, pytest.raises(DamageError):
        use(store, cyclic)


def test_a_copy_of_all_leaves_them_out(cyclic: Path) -> None:
    with open_store(cyclic / "store") as store, open_store(cyclic / "other") as target:
        done = {each.checkpoint_id: each.outcome for each in copy_checkpoints(store, target)}
        assert target.list_ids() == []
    assert done[1] == "damaged"


def test_the_next_snapshot_starts_a_chain_of_its_own(cyclic: Path) -> None:
    make_copy(cyclic / "ck", 4)
    with open_store(cyclic / "store") as store:
        taken = take_snapshot(LocalDirectory(cyclic / "ck"), store)
        restore_directory(store, taken.checkpoint_id, LocalDirectory(cyclic / "out"))
    assert Tree.of(LocalDirectory(cyclic / "out")).batches("commits") == [2, 3]


def test_a_history_is_compared_without_walking_in_circles(cyclic: Path) -> None:
    with open_store(cyclic / "store") as store:
        shared_history(Tree.of(LocalDirectory(cyclic / "ck")), store)


@pytest.mark.parametrize(
    "command", ["list", "verify", "show 2", "recover --explain", "prune --keep 1"]
)
def test_every_command_comes_to_an_end(
    command: str, cyclic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = command.split()
    assert run([name, str(cyclic / "store"), *more]) in (0, 3, 4, 6)
    assert "fault of Seamark" not in capsys.readouterr().err
