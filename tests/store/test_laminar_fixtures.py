"""Checkpoints of LaminarDB, of every version of its format, are read as it would read them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.store import Blobs, CheckpointStore, open_store
from seamark.store.layout import FilesystemLayout, Layout, ObjectLayout

HERE = Path(__file__).parent.parent / "fixtures" / "laminar"
EXPECTED: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text("utf-8"))

Opened = tuple[CheckpointStore, dict[str, Any], Blobs, Layout]


@pytest.fixture(params=sorted(EXPECTED))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """A copy of a fixture, opened; what a reader must find; the bytes under it."""
    name = request.param
    if EXPECTED[name]["layout"] == "filesystem":
        shutil.copytree(HERE / name, tmp_path / "store")
        blobs: Blobs = FilesystemBlobs(str(tmp_path / "store"))
        with open_store(tmp_path / "store") as store:
            yield store, EXPECTED[name], blobs, FilesystemLayout()
        return
    blobs = MemoryBlobs()
    for path in (HERE / name).rglob("*"):
        if path.is_file():
            blobs.create(path.relative_to(HERE / name).as_posix(), path.read_bytes())
    with CheckpointStore(blobs, ObjectLayout()) as store:
        yield store, EXPECTED[name], blobs, ObjectLayout()


def manifest_of(store: CheckpointStore, checkpoint_id: int) -> CheckpointManifest:
    manifest = store.load_by_id(checkpoint_id)
    assert manifest is not None
    return manifest


def states_of(store: CheckpointStore, checkpoint_id: int) -> dict[str, bytes]:
    """The bytes of every operator, wherever they are kept."""
    states: dict[str, bytes] = {}
    for name, operator in manifest_of(store, checkpoint_id).operator_states.items():
        inline = operator.decode_inline()
        if inline is None:
            sidecar = store.load_state_data(checkpoint_id)
            assert sidecar is not None
            start = operator.external_offset
            inline = sidecar[start : start + operator.external_length]
        states[name] = inline
    return states


def assert_states(found: dict[str, bytes], expected: dict[str, dict[str, Any]]) -> None:
    assert found.keys() == expected.keys()
    for name, about in expected.items():
        assert len(found[name]) == about["length"]
        assert sha256(found[name]).hexdigest() == about["sha256"]
        assert found[name].hex() == about.get("hex", found[name].hex())


def test_ids_and_epochs_are_found(opened: Opened) -> None:
    store, expected, _, _ = opened
    checkpoints = expected["checkpoints"]
    assert store.list_ids() == [about["id"] for about in checkpoints]
    valid = {(about["id"], about["epoch"]) for about in checkpoints if about["valid"]}
    assert valid <= set(store.list())


def test_each_is_found_valid_or_damaged(opened: Opened) -> None:
    store, expected, _, _ = opened
    found = {
        about["id"]: store.validate_checkpoint(about["id"]).valid
        for about in expected["checkpoints"]
    }
    assert found == {about["id"]: about["valid"] for about in expected["checkpoints"]}


def test_being_of_another_system_is_a_warning_and_not_damage(opened: Opened) -> None:
    store, expected, _, _ = opened
    for about in expected["checkpoints"]:
        if about["valid"]:
            issues = store.validate_checkpoint(about["id"]).issues
            assert {issue.severity for issue in issues} == {"warning"}
            assert any("another system" in str(issue) for issue in issues)


def test_the_state_of_every_operator_is_read(opened: Opened) -> None:
    store, expected, _, _ = opened
    for about in expected["checkpoints"]:
        if about["valid"]:
            assert_states(states_of(store, about["id"]), about["operator_states"])


def test_recovery_chooses_the_newest_valid_one(opened: Opened) -> None:
    store, expected, _, _ = opened
    report = store.recover_latest_validated()
    assert report.chosen_id == expected["newest_valid"]
    assert not report.fresh_start
    skipped = {number for number, _ in report.skipped}
    assert skipped >= {
        about["id"]
        for about in expected["checkpoints"]
        if not about["valid"] and about["id"] > expected["newest_valid"]
    }


def test_state_that_was_left_behind_is_no_checkpoint(opened: Opened) -> None:
    store, expected, _, _ = opened
    assert store.next_id() > max([0, *expected["orphans"]])
    assert store.cleanup_orphans(min_age=0) == len(expected["orphans"])
    for about in expected["checkpoints"]:
        assert store.validate_checkpoint(about["id"]).valid == about["valid"]


def test_an_update_changes_what_it_is_about_and_nothing_else(opened: Opened) -> None:
    store, expected, blobs, layout = opened
    for about in expected["checkpoints"]:
        if not about["valid"]:
            continue
        key = layout.manifest(about["id"])
        before = _document(blobs, key)
        statuses = {"lake": SinkCommitStatus.failed("tried by a test")}
        manifest = manifest_of(store, about["id"])
        store.update_manifest(manifest.replace(sink_commit_statuses=statuses))
        after = _document(blobs, key)
        assert after.pop("sink_commit_statuses") == {"lake": {"Failed": "tried by a test"}}
        for name, value in before.items():
            if name not in ("sink_commit_statuses", "size_bytes"):
                assert after[name] == value, name
        assert after.keys() - before.keys() <= {
            "writer",
            "self_checksum",
            "size_bytes",
            "sink_epochs",
        }


def _document(blobs: Blobs, key: str) -> dict[str, Any]:
    blob = blobs.read(key, 1 << 30)
    assert blob is not None
    document: dict[str, Any] = json.loads(blob.data)
    return document


def test_an_updated_checkpoint_is_as_good_as_before(opened: Opened) -> None:
    store, expected, blobs, layout = opened
    valid = [about for about in expected["checkpoints"] if about["valid"]]
    for about in valid:
        store.update_manifest(manifest_of(store, about["id"]).replace(sink_epochs={"lake": 1}))
    fresh = CheckpointStore(blobs, layout)
    assert [fresh.validate_checkpoint(about["id"]).damage for about in valid] == [[] for _ in valid]
    for about in valid:
        assert_states(states_of(fresh, about["id"]), about["operator_states"])
    assert fresh.cleanup_orphans(min_age=0) == len(expected["orphans"])


def test_a_checkpoint_of_ours_goes_on_after_theirs(opened: Opened) -> None:
    store, expected, blobs, layout = opened
    store.claim()
    number = store.next_id()
    assert number > max(about["id"] for about in expected["checkpoints"])
    store.save_with_state(CheckpointManifest.new(number, epoch=9), [b"ours"])
    fresh = CheckpointStore(blobs, layout)
    report = fresh.recover_latest_validated()
    assert report.chosen_id == number


def _readers() -> dict[str, Callable[[CheckpointManifest], object]]:
    return {
        "watermark": lambda m: m.watermark,
        "source": lambda m: m.source_offsets["trades"].offsets["partition-0"],
        "metadata": lambda m: m.source_offsets["trades"].metadata["topic"],
        "table": lambda m: m.table_offsets["rates"].offsets["lsn"],
        "hash": lambda m: m.pipeline_hash,
        "sinks": lambda m: (m.sink_names, m.sink_epochs),
    }


def test_named_fields_mean_what_they_meant_there(tmp_path: Path) -> None:
    shutil.copytree(HERE / "made" / "fs-17-mixed", tmp_path / "store")
    manifest = manifest_of(open_store(tmp_path / "store"), 1)
    assert {name: read(manifest) for name, read in _readers().items()} == {
        "watermark": 5000,
        "source": "100",
        "metadata": 'tr"ades\\é',
        "table": "0/16B3748",
        "hash": 15480793117843365827,
        "sinks": (["lake"], {"lake": 1}),
    }
    assert manifest.sink_commit_statuses == {"lake": SinkCommitStatus.committed()}


def test_every_version_of_the_format_is_among_the_fixtures() -> None:
    assert {about["fields"] for about in EXPECTED.values()} >= {17, 21, 22, 23, 25}
    assert {about["layout"] for about in EXPECTED.values()} == {"filesystem", "object"}
