"""The manifest of state checkpoints, against the document that describes them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import DamageError, InvalidInputError
from seamark.state import (
    CheckpointId,
    CheckpointManifestV2,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    SourceOffsetEntry,
)

ID = CheckpointId.parse("01956e3a-9c00-7abc-8def-0123456789ab")
OTHER = CheckpointId.parse("01956e3a-9c01-7abc-8def-0123456789ab")
SMALLEST: dict[str, Any] = {
    "version": 2,
    "checkpoint_id": str(ID),
    "epoch": 1,
    "timestamp_ms": 1000,
}


def read(**members: Any) -> CheckpointManifestV2:
    return CheckpointManifestV2.from_json(json.dumps({**SMALLEST, **members}).encode())


# The document's own tests.


def example() -> CheckpointManifestV2:
    return CheckpointManifestV2.new(
        ID,
        10,
        watermark=5000,
        parent_id=OTHER,
        operators={
            "window-agg": OperatorSnapshotEntry(
                [
                    PartitionSnapshotEntry(
                        partition_id=0,
                        is_delta=False,
                        path="operators/window-agg/partition-0.snap",
                        size_bytes=1024,
                        sha256="abcd1234",
                    ),
                    PartitionSnapshotEntry(
                        partition_id=1,
                        is_delta=True,
                        path="operators/window-agg/partition-1.delta",
                        size_bytes=256,
                    ),
                ],
                total_bytes=1280,
            )
        },
        source_offsets={
            "kafka-trades": SourceOffsetEntry(
                "kafka", {"partition-0": "1234", "partition-1": "5678"}, 10
            )
        },
    )


def test_manifest_v2_json_round_trip() -> None:
    manifest = example()
    restored = CheckpointManifestV2.from_json(manifest.to_json())
    assert restored == manifest
    assert (restored.version, restored.checkpoint_id, restored.epoch) == (2, ID, 10)
    assert (restored.watermark, restored.parent_id) == (5000, OTHER)
    assert len(restored.operators["window-agg"].partitions) == 2
    assert restored.operators["window-agg"].total_bytes == 1280
    assert restored.source_offsets["kafka-trades"].offsets["partition-0"] == "1234"


def test_manifest_v2_backward_compat_missing_fields() -> None:
    manifest = read()
    assert manifest.version == 2
    assert manifest.operators == {}
    assert manifest.source_offsets == {}
    assert manifest.parent_id is None
    assert manifest.watermark is None
    assert manifest.total_size_bytes == 0


# The manifest as a document.


def test_a_plain_entry_has_exactly_the_documents_fields() -> None:
    document = json.loads(example().to_json())
    assert document == {
        "version": 2,
        "checkpoint_id": str(ID),
        "epoch": 10,
        "timestamp_ms": document["timestamp_ms"],
        "operators": {
            "window-agg": {
                "partitions": [
                    {
                        "partition_id": 0,
                        "is_delta": False,
                        "path": "operators/window-agg/partition-0.snap",
                        "size_bytes": 1024,
                        "sha256": "abcd1234",
                    },
                    {
                        "partition_id": 1,
                        "is_delta": True,
                        "path": "operators/window-agg/partition-1.delta",
                        "size_bytes": 256,
                        "sha256": None,
                    },
                ],
                "total_bytes": 1280,
            }
        },
        "source_offsets": {
            "kafka-trades": {
                "source_type": "kafka",
                "offsets": {"partition-0": "1234", "partition-1": "5678"},
                "epoch": 10,
            }
        },
        "parent_id": str(OTHER),
        "watermark": 5000,
        "total_size_bytes": 0,
    }


def test_what_only_we_know_is_added_and_read_back() -> None:
    entry = PartitionSnapshotEntry(3, False, "packs/x.lcb", 5, "00", OTHER, (8, 5, 0))
    manifest = example().replace(operators={"a": OperatorSnapshotEntry([entry], 5)})
    document = json.loads(manifest.to_json())
    assert document["operators"]["a"]["partitions"][0] == {
        "partition_id": 3,
        "is_delta": False,
        "path": "packs/x.lcb",
        "size_bytes": 5,
        "sha256": "00",
        "origin": str(OTHER),
        "pack": [8, 5, 0],
    }
    assert CheckpointManifestV2.from_json(manifest.to_json()) == manifest


def test_a_new_manifest_is_of_version_2_and_of_now() -> None:
    manifest = CheckpointManifestV2.new(ID, 3)
    assert (manifest.version, manifest.checkpoint_id, manifest.epoch) == (2, ID, 3)
    assert abs(manifest.timestamp_ms - time.time() * 1000) < 10_000


def test_fields_that_may_be_missing_in_entries() -> None:
    manifest = read(
        operators={
            "a": {
                "partitions": [
                    {"partition_id": 1, "is_delta": True, "path": "p", "size_bytes": 2},
                ]
            }
        }
    )
    assert manifest.operators["a"] == OperatorSnapshotEntry(
        [PartitionSnapshotEntry(1, True, "p", 2)], 0
    )


def test_fields_of_tomorrow_are_kept() -> None:
    extra = {"of_tomorrow": {"a": [1, None, "é"]}, "writer": "w", "extra": 1, "z": False}
    manifest = read(**extra)
    assert manifest.extra == extra
    assert json.loads(manifest.replace(epoch=9).to_json()).items() >= {**extra, "epoch": 9}.items()
    assert CheckpointManifestV2.from_json(manifest.to_json()) == manifest


def test_an_extra_field_cannot_stand_in_for_a_named_one() -> None:
    with pytest.raises(InvalidInputError):
        CheckpointManifestV2.new(ID, 1, extra={"epoch": 99})


@pytest.mark.parametrize("field", list(SMALLEST))
def test_a_mandatory_field_that_is_missing_is_damage(field: str) -> None:
    document = {name: value for name, value in SMALLEST.items() if name != field}
    with pytest.raises(DamageError, match=field):
        CheckpointManifestV2.from_json(json.dumps(document).encode())


def partition(**members: Any) -> dict[str, Any]:
    plain = {"partition_id": 0, "is_delta": False, "path": "p", "size_bytes": 1}
    return {"operators": {"a": {"partitions": [{**plain, **members}]}}}


@pytest.mark.parametrize(
    "members",
    [
        {"checkpoint_id": "latest"},
        {"checkpoint_id": str(ID).upper()},
        {"checkpoint_id": None},
        {"checkpoint_id": [str(ID)]},
        {"checkpoint_id": 7},
        {"parent_id": "../x"},
        {"parent_id": 1},
        {"epoch": -1},
        {"epoch": 2**64},
        {"epoch": 1.5},
        {"epoch": "1"},
        {"epoch": True},
        {"timestamp_ms": -1},
        {"total_size_bytes": -1},
        {"total_size_bytes": 2**64},
        {"watermark": "5"},
        {"watermark": 2**63},
        {"watermark": -(2**63) - 1},
        {"operators": []},
        {"operators": {"a": {}}},
        {"operators": {"a": {"partitions": {}}}},
        {"operators": {"a": {"partitions": [], "total_bytes": -1}}},
        {"source_offsets": {"a": {"source_type": "k", "offsets": {"p": 1}, "epoch": 1}}},
        {"source_offsets": {"a": {"source_type": "k", "offsets": {}}}},
        {"source_offsets": {"a": {"source_type": "k", "offsets": {}, "epoch": -1}}},
        partition(partition_id=-1),
        partition(partition_id=2**32),
        partition(size_bytes=-1),
        partition(size_bytes=2**64),
        partition(is_delta=1),
        partition(path=None),
        partition(sha256=5),
        partition(origin="x"),
        partition(pack=[1, 2]),
        partition(pack=[1, 2, 3, 4]),
        partition(pack=["1", 2, 3]),
        partition(pack=[-1, 2, 0]),
    ],
    ids=json.dumps,
)
def test_values_of_the_wrong_kind_are_damage(members: dict[str, Any]) -> None:
    with pytest.raises(DamageError, match="corrupt state manifest"):
        read(**members)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\x00",
        bytes(range(256)),
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'{"of_tomorrow":' + b"[" * 1_000_000,
        json.dumps(SMALLEST).encode() * 2,
        json.dumps(SMALLEST).encode() + b"x",
        json.dumps(SMALLEST).encode().replace(b"1000", b"9" * 10_000),
        json.dumps(SMALLEST).encode().replace(b"1000", b"NaN"),
        json.dumps({**SMALLEST, "x": "x"}).encode().replace(b'"x": "x"', b'"x": "\xff"'),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_hostile_json_is_damage_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(DamageError, match="corrupt state manifest"):
        CheckpointManifestV2.from_json(data)


def test_every_truncation_is_damage() -> None:
    whole = example().replace(extra={"of_tomorrow": [1]}).to_json()
    for size in range(len(whole)):
        with pytest.raises(DamageError):
            CheckpointManifestV2.from_json(whole[:size])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
u64 = st.integers(0, 2**64 - 1)
ids = st.uuids().map(CheckpointId.from_uuid)
partitions = st.builds(
    PartitionSnapshotEntry,
    st.integers(0, 2**32 - 1),
    st.booleans(),
    texts,
    u64,
    st.none() | texts,
)
manifests = st.builds(
    CheckpointManifestV2.new,
    ids,
    u64,
    operators=st.dictionaries(
        texts, st.builds(OperatorSnapshotEntry, st.lists(partitions, max_size=3), u64), max_size=3
    ),
    source_offsets=st.dictionaries(
        texts,
        st.builds(SourceOffsetEntry, texts, st.dictionaries(texts, texts, max_size=2), u64),
        max_size=2,
    ),
    parent_id=st.none() | ids,
    watermark=st.none() | st.integers(-(2**63), 2**63 - 1),
    total_size_bytes=u64,
)


@given(manifests)
def test_every_manifest_there_and_back(manifest: CheckpointManifestV2) -> None:
    assert CheckpointManifestV2.from_json(manifest.to_json()) == manifest
    assert json.loads(manifest.to_json())["checkpoint_id"] == str(manifest.checkpoint_id)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(DamageError):
        CheckpointManifestV2.from_json(data)
