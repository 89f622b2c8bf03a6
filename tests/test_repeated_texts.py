"""A long name or reason is not repeated for each of the many things that it is said of."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from seamark import CheckpointManifest, limits, open_store
from seamark._common.json_documents import seal
from seamark.blobs.memory import MemoryBlobs
from seamark.manifest import ConnectorCheckpoint, OperatorCheckpoint
from seamark.reports.checkpoint_document import describe
from seamark.reports.checkpoint_summary import summarize_checkpoints
from seamark.spark.kafka.lag import recorded_lag
from seamark.spark.kafka.positions import parsed
from seamark.spark.plans.lossy_options import recorded_losses
from seamark.spark.source_gaps import gap_texts
from seamark.state import CheckpointId, StateStore
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from tests.support.counted_blobs import CountedBlobs

LONG = "n" * 5_000
MANY = 200
SHORT = 2 * (limits.LONGEST_PREFIX + limits.LONGEST_REASON)


def put_state(root: Path, operator: str, **entry: Any) -> CheckpointId:
    """A state checkpoint of ours with many partitions that are all alike."""
    state = CheckpointId.now()
    partitions = [
        {"partition_id": n, "is_delta": False, "path": f"p{n}", "size_bytes": 0, "sha256": "0"}
        | entry
        for n in range(MANY)
    ]
    document = {
        "version": 2,
        "checkpoint_id": str(state),
        "epoch": 1,
        "timestamp_ms": 1,
        "operators": {operator: {"partitions": partitions, "total_bytes": 0}},
        "writer": "somebody",
    }
    folder = root / "checkpoints" / str(state)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(seal(json.dumps(document).encode()))
    return state


def damaged_pack(key: bytes) -> bytes:
    """A pack of one empty entry whose name is no text."""
    header = struct.pack("<4sI", b"LCB1", 3)
    index = struct.pack("<I", len(key)) + key + struct.pack("<QQQB32s", 8, 0, 0, 0, bytes(32))
    start = struct.pack("<QQII", 8, len(index), 1, google_crc32c.value(b""))
    crc = google_crc32c.value(header + index + start)
    return header + index + start + struct.pack("<I4s", crc, b"LCB3")


@pytest.mark.parametrize("read_data", [False, True])
def test_the_name_of_an_operator_is_not_repeated_for_each_lost_partition(
    tmp_path: Path, read_data: bool
) -> None:
    state = put_state(tmp_path, LONG)
    with StateStore(tmp_path) as store:
        *issues, rest = store.verify(state, read_data=read_data).issues
    assert rest == f"and {MANY - len(issues)} more"
    assert max(map(len, issues)) < SHORT
    assert sum(map(len, issues)) <= limits.LONGEST_LIST


def test_what_is_wrong_with_a_pack_is_not_repeated_for_each_of_its_entries(tmp_path: Path) -> None:
    state = put_state(tmp_path, "agg", path="pack", pack=[8, 0, 0])
    (tmp_path / f"checkpoints/{state}/pack").write_bytes(damaged_pack(b"\xff" * len(LONG)))
    with StateStore(tmp_path) as store:
        *issues, rest = store.verify(state).issues
    assert rest == f"and {MANY - len(issues)} more"
    assert max(map(len, issues)) < SHORT


def test_what_is_wrong_with_a_checkpoint_is_told_in_short_by_all_that_build_on_it() -> None:
    blobs = MemoryBlobs()
    store = CheckpointStore(blobs, ObjectLayout())
    key = ObjectLayout().manifest(1)
    bad = {f"{LONG}{n}": OperatorCheckpoint(state_b64="!") for n in range(3)}
    blobs.create(key, CheckpointManifest.new(1, epoch=1, operator_states=bad).to_json())
    for number in range(2, 5):
        store.save(CheckpointManifest.new(number, epoch=number, is_incremental=True, parent_id=1))
    skipped = dict(store.recover_latest_validated().skipped)
    assert len(skipped[1]) > 3 * len(LONG)
    assert all(len(skipped[number]) < SHORT for number in range(2, 5))
    assert skipped[4].endswith("…, and 2 more")


@pytest.mark.parametrize("contents", [b"no manifest", None], ids=["damaged", "gone"])
def test_a_manifest_that_cannot_be_read_is_read_once_for_all_that_build_on_it(
    contents: bytes | None,
) -> None:
    blobs = CountedBlobs()
    store = CheckpointStore(blobs, ObjectLayout())
    key = ObjectLayout().manifest(1)
    store.save(CheckpointManifest.new(1, epoch=1))
    for number in range(2, MANY):
        store.save(CheckpointManifest.new(number, epoch=number, is_incremental=True, parent_id=1))
    blobs.delete([key])
    if contents is not None:
        blobs.create(key, contents)
    blobs.forget()
    assert CheckpointStore(blobs, ObjectLayout()).recover_latest_validated().chosen_id is None
    assert blobs.read_keys.count(key) <= 2


def test_a_source_is_not_named_in_full_with_each_of_its_moves() -> None:
    move = {"from": 1, "to": None, "why": "expired"}
    gap = {"source": LONG, "epoch": LONG, "timestamp_ms": 1, "moves": [move] * MANY}
    texts = gap_texts([gap])
    assert len(texts) == MANY
    assert max(map(len, texts)) < SHORT


def test_a_source_is_not_named_in_full_with_each_of_its_options() -> None:
    options = {f"option{n}": "true" for n in range(MANY)}
    texts = recorded_losses({"sources": {LONG: {"may_lose": options}}})
    assert len(texts) == MANY
    assert max(map(len, texts)) < SHORT


def test_a_name_that_no_topic_has_is_not_put_before_each_of_its_partitions() -> None:
    longest, partitions = "t" * limits.LONGEST_TOPIC, {str(n): n for n in range(MANY)}
    assert parsed(json.dumps({f"{longest}t": partitions})) is None
    line = json.dumps({LONG: partitions})
    manifest = CheckpointManifest.new(
        1,
        epoch=1,
        source_offsets={"trades": ConnectorCheckpoint({}, 1, {"line": line})},
        source_latest={"trades": line},
    )
    assert recorded_lag(manifest) == {}
    with open_store("memory://") as store:
        store.save(manifest)
        assert summarize_checkpoints(store)[1].status == "valid"
        assert describe(store, manifest)["lag"] == {}
    whole = parsed(json.dumps({longest: partitions}))
    assert whole == {longest: {n: n for n in range(MANY)}}
