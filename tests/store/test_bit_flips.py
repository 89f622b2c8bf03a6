"""One flipped bit in any stored byte is noticed before anything is restored from it (I7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.store import open_store

STATE = b"state of an operator that did not fit"


@pytest.fixture(scope="module")
def store_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flips") / "store"
    with open_store(root) as store:
        store.claim(pipeline="trades")
        store.save_with_state(
            CheckpointManifest.new(
                1,
                epoch=1,
                sink_commit_statuses={"out": SinkCommitStatus.pending()},
                operator_states={
                    "agg": OperatorCheckpoint.inline(b"inline"),
                    "join": OperatorCheckpoint.in_sidecar(0, len(STATE)),
                },
            ),
            [STATE],
        )
        store.pin("first", 1)
    return root


def flipped(path: Path) -> Iterator[str]:
    """Every version of a file with one bit changed, one after the other, on disk."""
    good = path.read_bytes()
    try:
        for position in range(len(good)):
            for bit in range(8):
                bad = bytearray(good)
                bad[position] ^= 1 << bit
                path.write_bytes(bytes(bad))
                yield f"bit {bit} of byte {position} ({chr(good[position])!r})"
    finally:
        path.write_bytes(good)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "state.bin"])
def test_I7_a_flipped_bit_of_a_checkpoint_is_damage(store_dir: Path, name: str) -> None:
    seen = 0
    for what in flipped(store_dir / "checkpoints/checkpoint_000001" / name):
        store = open_store(store_dir)  # a new one each time: nothing is remembered
        assert not store.validate_checkpoint(1).valid, f"{name}: {what}"
        report = store.recover_latest_validated()
        assert report.chosen_id is None, f"{name}: {what}"
        assert [skipped for skipped, _ in report.skipped] == [1]
        assert not report.fresh_start
        seen += 1
    assert seen == 8 * (store_dir / "checkpoints/checkpoint_000001" / name).stat().st_size
    assert open_store(store_dir).recover_latest_validated().chosen_id == 1


def test_I7_a_flipped_bit_of_the_owner_stops_recovery_with_advice(store_dir: Path) -> None:
    for what in flipped(store_dir / "owner.json"):
        with pytest.raises(DamageError, match=r"owner\.json") as caught:
            open_store(store_dir).recover_latest_validated()
        assert caught.value.exit_code == 3, what
        assert "rebuild_owner" in str(caught.value)


def test_a_flipped_bit_of_the_pointer_loses_nothing(store_dir: Path) -> None:
    for what in flipped(store_dir / "checkpoints/latest.txt"):
        report = open_store(store_dir).recover_latest_validated()
        assert report.chosen_id == 1, what


def test_a_damaged_owner_can_be_rebuilt_from_the_manifests(store_dir: Path) -> None:
    path = store_dir / "owner.json"
    good = path.read_bytes()
    try:
        path.write_bytes(good.replace(b"trades", b"trAdes"))
        store = open_store(store_dir)
        owner = store.rebuild_owner()
        assert owner.generation == 2
        assert owner.next_id == 2
        report = store.recover_latest_validated()
        assert report.chosen_id == 1
        store.claim()
        assert store.next_id() == 2
        store.save(CheckpointManifest.new(2, epoch=2))
        assert store.list() == [(1, 1), (2, 2)]
        store.close()
    finally:
        path.write_bytes(good)
