"""A store whose ``owner.json`` is damaged, lost or too old can be used again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seamark import open_store
from seamark.errors import FencedError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.plans import StoredPlan
from tests.cli.support.stores import Commands, flip, save

NEED_AN_OWNER = {
    "list": ["list", "STORE"],
    "show": ["show", "STORE", "2"],
    "verify": ["verify", "STORE"],
    "recover": ["recover", "STORE", "--explain"],
    "pin": ["pin", "STORE", "2", "gold"],
    "prune": ["prune", "STORE", "--keep", "1"],
    "rollback": ["rollback", "STORE", "2"],
}


@pytest.mark.parametrize("name", NEED_AN_OWNER)
@pytest.mark.parametrize("is_lost", [True, False])
def test_every_command_that_stops_names_the_way_out(
    seamark: Commands, store: Path, name: str, is_lost: bool
) -> None:
    if is_lost:
        (store / "owner.json").unlink()
    else:
        flip(store / "owner.json")
    out = seamark(*(str(store) if w == "STORE" else w for w in NEED_AN_OWNER[name]), code=3)
    said = seamark.err or out  # below the rows of a command that lists all the same
    assert "--rebuild-owner" in " ".join(said.split())


@pytest.mark.parametrize("data", [None, b"", b"{}", b"nonsense"])
def test_it_is_shown_first_then_done_and_the_store_goes_on(
    seamark: Commands, store: Path, data: bytes | None
) -> None:
    seamark("pin", store, 1, "gold")
    owner = store / "owner.json"
    owner.unlink()
    if data is not None:
        owner.write_bytes(data)
    shown = " ".join(seamark("doctor", store, "--rebuild-owner").split())
    assert "Its pins are lost" in shown
    assert "is fenced by that" in shown
    assert f"seamark doctor {store} --rebuild-owner --yes" in shown
    assert (owner.read_bytes() if owner.exists() else None) == data

    assert "owner.json is rebuilt" in seamark("doctor", store, "--rebuild-owner", "--yes")
    assert seamark.json("list", store)["newest_valid"] == 4
    seamark("doctor", store)
    with open_store(store) as found:
        found.claim()
        save(found, 5)
        assert found.pins() == {}


def test_an_owner_that_was_put_back_from_a_copy_is_brought_up_to_date(
    seamark: Commands, store: Path
) -> None:
    seamark("pin", store, 1, "gold")
    old = (store / "owner.json").read_bytes()
    with open_store(store) as found:
        found.claim()
        found.supersede(4, 4)
        save(found, 5, is_incremental=False, parent_id=None)
    (store / "owner.json").write_bytes(old)
    seamark("list", store, code=3)
    document = seamark.json("doctor", store, "--rebuild-owner", "--yes")
    assert document["done"]
    assert document["pins"] == ["gold"]
    rows = {row["id"]: row["status"] for row in seamark.json("list", store)["checkpoints"]}
    assert rows == {5: "valid", 4: "superseded", 3: "valid", 2: "valid", 1: "valid"}
    assert seamark.json("show", store, "gold")["id"] == 1


def test_a_writer_that_is_alive_is_named_and_fenced(seamark: Commands, store: Path) -> None:
    with open_store(store) as running:
        running.claim()
        save(running, 5)
        (store / "owner.json").write_bytes(b"nonsense")
        assert "The last writer is alive" in seamark("doctor", store, "--rebuild-owner")
        seamark("doctor", store, "--rebuild-owner", "--yes")
        with pytest.raises(FencedError):
            running.check_claim()


def test_where_there_is_nothing_to_rebuild_nothing_is_written(
    seamark: Commands, store: Path, tmp_path: Path
) -> None:
    before = (store / "owner.json").read_bytes()
    seamark("doctor", store, "--rebuild-owner", "--yes", code=6)
    assert "owner.json is whole" in seamark.err
    assert (store / "owner.json").read_bytes() == before
    (tmp_path / "other").mkdir()
    seamark("doctor", tmp_path / "other", "--rebuild-owner", "--yes", code=6)
    assert list((tmp_path / "other").iterdir()) == []
    seamark("doctor", store, "--yes", code=2)
    seamark("doctor", store, "--rebuild-owner", "--read-only", "--yes", code=2)
    seamark("doctor", "redis://localhost/0", "--rebuild-owner", code=1)


# before the first checkpoint


def _begun(root: Path, *epochs: int) -> str:
    """A store in which a first epoch has a plan and no checkpoint; its timeline."""
    with open_store(root) as store:
        timeline = store.claim(pipeline="orders").timeline
        for epoch in epochs:
            _keep_plan(store, timeline, epoch)
    return timeline


def _keep_plan(store: CheckpointStore, timeline: str, epoch: int) -> None:
    store.plans.keep(
        StoredPlan(
            timeline=timeline,
            epoch=epoch,
            fingerprint="f",
            follows="",
            leaves=("in",),
            offsets="v1",
        )
    )


@pytest.mark.parametrize("remains", [None, b'{"generation":1' + bytes(20), b"nonsense"])
@pytest.mark.parametrize("has_tombstone", [True, False])
def test_an_epoch_that_was_begun_before_the_first_checkpoint_keeps_its_plan(
    seamark: Commands, tmp_path: Path, remains: bytes | None, has_tombstone: bool
) -> None:
    timeline = _begun(tmp_path, 1)
    (tmp_path / "owner.json").unlink()
    if remains is not None:
        (tmp_path / "owner.json").write_bytes(remains)
    if not has_tombstone:
        shutil.rmtree(tmp_path / "checkpoints")
    seamark("doctor", tmp_path, "--rebuild-owner", "--yes")
    with open_store(tmp_path) as store:
        assert store.claim(pipeline="orders").timeline == timeline
        assert store.plans.epochs_after(timeline, 0) == {1}


def test_plans_of_two_timelines_without_a_checkpoint_are_not_chosen_between(
    seamark: Commands, tmp_path: Path
) -> None:
    timeline = _begun(tmp_path, 1)
    with open_store(tmp_path) as store:
        store.claim()
        _keep_plan(store, "0" * 32, 1)
    owner = (tmp_path / "owner.json").read_bytes()
    (tmp_path / "owner.json").write_bytes(b"nonsense")
    seamark("doctor", tmp_path, "--rebuild-owner", "--yes", code=6)
    assert "epochs of 2 timelines were begun" in " ".join(seamark.err.split())
    assert (tmp_path / "owner.json").read_bytes() == b"nonsense"

    # what is left of the old one names the timeline
    (tmp_path / "owner.json").write_bytes(owner.replace(b'"orders"', b'"orderz"'))
    seamark("doctor", tmp_path, "--rebuild-owner", "--yes")
    with open_store(tmp_path) as store:
        assert store.claim().timeline == timeline


# after a rollback or a reset, before the first checkpoint of the new timeline


def _left(root: Path) -> tuple[str, str]:
    """A store whose timeline was left, and in which an epoch of the next has begun; both."""
    with open_store(root) as store:
        before = store.claim(pipeline="orders").timeline
        for number in range(1, 4):
            store.save(CheckpointManifest.new(number, epoch=number))
        store.supersede(1, 3)
        after = store.owner().timeline
        _keep_plan(store, after, 1)
    return before, after


def test_a_timeline_that_has_only_plans_is_not_exchanged_for_the_one_before(
    seamark: Commands, tmp_path: Path
) -> None:
    before, after = _left(tmp_path)
    owner = (tmp_path / "owner.json").read_bytes()
    (tmp_path / "owner.json").unlink()
    seamark("doctor", tmp_path, "--rebuild-owner", "--yes", code=6)
    assert "epochs of a timeline were begun of which no checkpoint knows" in " ".join(
        seamark.err.split()
    )
    (tmp_path / "owner.json").write_bytes(owner.replace(b'"orders"', b'"orderz"'))
    seamark("doctor", tmp_path, "--rebuild-owner", "--yes")
    with open_store(tmp_path) as store:
        assert store.claim().timeline == after != before


def test_a_timeline_that_was_left_does_not_come_back(seamark: Commands, tmp_path: Path) -> None:
    before, _ = _left(tmp_path)
    shutil.rmtree(tmp_path / "plans")
    owner = (tmp_path / "owner.json").read_bytes()
    (tmp_path / "owner.json").write_bytes(owner.replace(b'"orders"', b'"orderz"'))
    seamark("doctor", tmp_path, "--rebuild-owner", "--yes")
    with open_store(tmp_path) as store:
        assert store.claim().timeline not in (before, "")
