"""The manifest as a document: hostile input, and everything there and back."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark import limits
from seamark.errors import DamageError
from seamark.manifest import (
    NAMED_FIELDS,
    SEAMARK_FIELDS,
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from tests.manifest.support.documents import FIELDS, SMALLEST, read, refused


class TestHostileDocuments:
    @pytest.mark.parametrize(
        "fields",
        [
            {"sink_commit_statuses": {"lake": "x" * 100_000}},
            {"sink_commit_statuses": {"lake": {"x" * 100_000: 1}}},
            {"sink_epochs": {"x" * 100_000: -1}},
            {"source_watermarks": {"x" * 100_000: 2**63}},
        ],
    )
    def test_what_is_wrong_does_not_repeat_all_of_a_long_value(
        self, fields: dict[str, Any]
    ) -> None:
        with pytest.raises(DamageError) as raised:
            CheckpointManifest.from_json(json.dumps({**SMALLEST, **fields}).encode())
        assert len(raised.value.what) < limits.LONGEST_REASON + 100

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b" ",
            b"{",
            b"}",
            b"null",
            b"true",
            b"[]",
            b'"manifest"',
            b"1e999",
            b"\x00",
            bytes(range(256)),
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\x00}\x00",
            b"[" * 1_000_000,
            b'{"a":' * 1_000_000,
            b'{"of_tomorrow":' + b"[" * 1_000_000,
            b'{"source_offsets":{"a":' * 10_000,
            json.dumps(SMALLEST).encode() + b"x",
            json.dumps(SMALLEST).encode() * 2,
            json.dumps({**SMALLEST, "epoch": 1}).encode().replace(b"1,", b"9" * 10_000 + b",", 1),
            json.dumps(SMALLEST).encode().replace(b"3", b"NaN"),
            json.dumps(SMALLEST).encode().replace(b"3", b"-0.1e-999"),
            json.dumps({**SMALLEST, "source_names": ["x"]}).encode().replace(b"x", b"\xff"),
            json.dumps({**SMALLEST, "x": "x"}).encode().replace(b'"x": "x"', b'"x": "\\ud800"'),
        ],
        ids=lambda data: repr(data[:20]),
    )
    def test_it_is_damage_and_nothing_worse(self, data: bytes) -> None:
        assert refused(data)

    def test_every_truncation_is_damage(self) -> None:
        whole = read(writer="w", source_names=["é"], of_tomorrow={"a": [1]}).to_json()
        for size in range(len(whole)):
            assert refused(whole[:size])

    def test_nesting_in_an_unknown_field_is_fine_as_far_as_it_can_be_read(self) -> None:
        deep: Any = 1
        for _ in range(100):
            deep = [deep]
        assert read(of_tomorrow=deep).extra["of_tomorrow"] == deep

    def test_a_large_document_is_read(self) -> None:
        offsets = {f"p{number}": str(number) for number in range(50_000)}
        manifest = read(source_offsets={"a": {"offsets": offsets}})
        assert manifest.source_offsets["a"].offsets == offsets

    def test_white_space_and_order_do_not_matter(self) -> None:
        text = json.dumps(dict(reversed(SMALLEST.items())), indent=4).encode()
        assert CheckpointManifest.from_json(b"\n\t " + text + b"\r\n") == read()


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
connectors = st.builds(
    ConnectorCheckpoint,
    offsets=st.dictionaries(names, names, max_size=2),
    epoch=u64,
    metadata=st.dictionaries(names, names, max_size=2),
)
operators = st.one_of(
    st.builds(OperatorCheckpoint.inline, st.binary(max_size=20)),
    st.builds(OperatorCheckpoint.in_sidecar, u64, u64),
    st.just(OperatorCheckpoint()),
)
statuses = st.one_of(
    st.builds(SinkCommitStatus.pending),
    st.builds(SinkCommitStatus.committed),
    st.builds(SinkCommitStatus.failed, names),
)
anything = st.recursive(
    st.none() | st.booleans() | i64 | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
manifests = st.builds(
    CheckpointManifest,
    version=st.integers(0, 2**32 - 1),
    checkpoint_id=u64,
    epoch=u64,
    timestamp_ms=u64,
    source_offsets=st.dictionaries(names, connectors, max_size=2),
    sink_epochs=st.dictionaries(names, u64, max_size=2),
    sink_commit_statuses=st.dictionaries(names, statuses, max_size=2),
    table_offsets=st.dictionaries(names, connectors, max_size=2),
    operator_states=st.dictionaries(names, operators, max_size=2),
    table_store_checkpoint_path=st.none() | names,
    wal_position=u64,
    per_core_wal_positions=st.lists(u64, max_size=3),
    watermark=st.none() | i64,
    source_watermarks=st.dictionaries(names, i64, max_size=2),
    source_names=st.lists(names, max_size=3),
    sink_names=st.lists(names, max_size=3),
    pipeline_hash=st.none() | u64,
    inflight_data=st.dictionaries(
        names, st.lists(st.builds(InFlightRecord, u64, names), max_size=2), max_size=2
    ),
    size_bytes=u64,
    is_incremental=st.booleans(),
    parent_id=st.none() | u64,
    state_checksum=st.none() | names,
    vnode_count=st.integers(0, 2**16 - 1),
    extra=st.dictionaries(
        (names | st.sampled_from(sorted(SEAMARK_FIELDS))).filter(lambda n: n not in NAMED_FIELDS),
        anything,
        max_size=4,
    ),
)


class TestRoundTrips:
    @given(manifests)
    def test_what_is_written_is_read(self, manifest: CheckpointManifest) -> None:
        again = CheckpointManifest.from_json(manifest.to_json())
        assert again == manifest
        assert CheckpointManifest.from_json(again.to_json()) == manifest

    @given(manifests)
    def test_other_readers_of_json_agree(self, manifest: CheckpointManifest) -> None:
        document = json.loads(manifest.to_json())
        assert list(document)[: len(FIELDS)] == FIELDS
        assert document["epoch"] == manifest.epoch
        assert {k: v for k, v in document.items() if k not in NAMED_FIELDS} == manifest.extra
        assert CheckpointManifest.from_json(json.dumps(document).encode()) == manifest

    @given(manifests)
    def test_findings_never_fail(self, manifest: CheckpointManifest) -> None:
        assert all(isinstance(text, str) for text in manifest.validate(expected_vnode_count=8))

    @given(st.binary(max_size=200))
    def test_any_bytes_are_a_manifest_or_damage(self, data: bytes) -> None:
        try:
            CheckpointManifest.from_json(data)
        except DamageError as error:
            assert "corrupt manifest" in error.what

    @given(manifests, st.data())
    def test_any_change_of_a_document_is_a_manifest_or_damage(
        self, manifest: CheckpointManifest, data: st.DataObject
    ) -> None:
        document = bytearray(manifest.to_json())
        at = data.draw(st.integers(0, len(document) - 1))
        document[at] = data.draw(st.integers(0, 255))
        try:
            CheckpointManifest.from_json(bytes(document))
        except DamageError as error:
            assert "corrupt manifest" in error.what

    def test_a_manifest_travels_between_processes(self) -> None:
        manifest = read(of_tomorrow=[1], sink_commit_statuses={"a": {"Failed": "x"}})
        assert pickle.loads(pickle.dumps(manifest)) == manifest
