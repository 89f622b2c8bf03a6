"""Each checkpoint is chained to the one before it, so that a store edited afterwards is noticed."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from seamark import CheckpointManifest, open_store
from seamark._common.json_documents import seal, unseal
from seamark.errors import RefusedError
from seamark.manifest import SinkCommitStatus
from seamark.manifest.decisions import chain_findings, decision_of, link_of
from seamark.store import CheckpointStore
from seamark.store.copy.run import copy_checkpoints
from seamark.store.inspection import scan
from tests.cli.support.running import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def filled(folder: Path, checkpoints: int = 4) -> CheckpointStore:
    store = open_store(folder / "store")
    store.claim(pipeline="trades")
    for epoch in range(1, checkpoints + 1):
        store.save(
            CheckpointManifest.new(
                store.next_id(),
                epoch=epoch,
                parent_id=epoch - 1 or None,
                sink_names=["bars"],
                sink_commit_statuses={"bars": SinkCommitStatus.pending()},
            )
        )
    return store


def found(store: CheckpointStore) -> dict[int, str]:
    return chain_findings(
        {one.checkpoint_id: link_of(one.manifest) for one in scan(store) if one.manifest}
    )


def edit(store: CheckpointStore, checkpoint_id: int, **members: object) -> None:
    """Change a stored manifest as somebody would who knows how its checksum is made."""
    path = Path(store.url) / f"checkpoints/checkpoint_{checkpoint_id:06}/manifest.json"
    document = msgspec.json.decode(unseal(path.read_bytes()))
    path.write_bytes(seal(msgspec.json.encode(document | members)))


def test_every_checkpoint_knows_what_the_one_before_it_decided(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        manifests = [store.load_by_id(number) for number in range(1, 5)]
        assert all(m is not None and m.decision == decision_of(m) for m in manifests)
        for before, after in itertools.pairwise(manifests):
            assert before is not None
            assert after is not None
            assert after.parent_decision == before.decision
        assert found(store) == {}


def test_a_new_process_goes_on_with_the_chain(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="trades")
        saved = store.save(CheckpointManifest.new(store.next_id(), epoch=5, parent_id=4))
        before = store.load_by_id(4)
        assert before is not None
        assert saved.parent_decision == before.decision is not None


def test_statuses_can_be_recorded_and_nothing_that_was_decided_can_be_changed(
    tmp_path: Path,
) -> None:
    with filled(tmp_path) as store:
        newest = store.load_latest()
        assert newest is not None
        updated = store.update_manifest(
            newest.replace(
                sink_commit_statuses={"bars": SinkCommitStatus.committed()},
                timings={"write": 1.0},
            )
        )
        assert updated.decision == newest.decision
        assert found(store) == {}
        with pytest.raises(RefusedError, match="may not change fingerprint"):
            store.update_manifest(updated.replace(fingerprint="other"))


def test_an_edited_manifest_is_noticed_by_verify(tmp_path: Path, cli: Cli) -> None:
    with filled(tmp_path) as store:
        edit(store, 2, watermark=77)
    document = cli.document("verify", tmp_path / "store", code=3)
    assert {row["id"]: row["damage"] for row in document["checkpoints"] if row["damage"]} == {
        2: ["it was changed after it was decided"]
    }


def test_an_edited_manifest_with_a_new_digest_is_noticed_too(tmp_path: Path, cli: Cli) -> None:
    with filled(tmp_path) as store:
        forged = store.load_by_id(2)
        assert forged is not None
        forged = forged.replace(watermark=77)
        edit(store, 2, watermark=77, decision=decision_of(forged))
    assert cli("verify", tmp_path / "store") == 3
    assert "it is not the one that was decided" in cli.out


def test_a_pruned_parent_and_a_gap_are_no_finding(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.prune(2)
        assert store.list_ids() == [3, 4]
        assert found(store) == {}


def test_a_copy_keeps_the_chain(tmp_path: Path) -> None:
    with filled(tmp_path) as store, open_store(tmp_path / "copy") as copy:
        copy_checkpoints(store, copy)
        assert copy.list_ids() == store.list_ids()
        assert found(copy) == {}


def strip(store: CheckpointStore, checkpoint_id: int) -> None:
    """Leave a manifest as an earlier version would have written it."""
    path = Path(store.url) / f"checkpoints/checkpoint_{checkpoint_id:06}/manifest.json"
    document = msgspec.json.decode(unseal(path.read_bytes()))
    for name in ("decision", "parent_decision"):
        document.pop(name, None)
    path.write_bytes(seal(msgspec.json.encode(document)))


def test_a_store_of_an_earlier_version_goes_on_and_its_chain_begins(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        for number in store.list_ids():
            strip(store, number)
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="trades")
        store.save(CheckpointManifest.new(store.next_id(), epoch=5, parent_id=4))
        store.save(CheckpointManifest.new(store.next_id(), epoch=6, parent_id=5))
        assert found(store) == {}
        strip(store, 5)
        assert list(found(store)) == [5]
