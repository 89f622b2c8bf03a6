"""The manifest as a value: its fields, their defaults and bounds, and what looks wrong in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seamark.errors import InvalidInputError
from seamark.manifest import (
    DEFAULT_VNODE_COUNT,
    NAMED_FIELDS,
    SEAMARK_FIELDS,
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from tests.manifest.support.documents import FIELDS, SMALLEST, read, refused


class TestFields:
    def test_there_are_23_named_fields_in_this_order(self) -> None:
        assert frozenset(FIELDS) == NAMED_FIELDS
        written = json.loads(CheckpointManifest.new(1, 1).to_json())
        assert list(written) == FIELDS

    def test_four_are_mandatory_and_the_rest_have_defaults(self) -> None:
        manifest = read()
        assert manifest == CheckpointManifest(**SMALLEST)
        empty: list[Any] = [{}, [], None, 0, False]
        for name in set(FIELDS) - SMALLEST.keys():
            assert getattr(manifest, name) in empty, name
        for name in SMALLEST:
            assert refused(json.dumps({k: v for k, v in SMALLEST.items() if k != name}).encode())

    def test_a_new_manifest_is_of_the_current_format_and_of_now(self) -> None:
        manifest = CheckpointManifest.new(5, epoch=6, watermark=7)
        assert (manifest.version, manifest.checkpoint_id, manifest.epoch) == (1, 5, 6)
        assert manifest.timestamp_ms > 1_700_000_000_000
        assert manifest.vnode_count == DEFAULT_VNODE_COUNT
        assert manifest.watermark == 7

    def test_unknown_fields_are_kept(self) -> None:
        unknown: dict[str, Any] = {"of_tomorrow": {"a": [1, None, "é"]}, "extra": 1, "": {}}
        manifest = read(**unknown)
        assert manifest.extra == unknown
        assert json.loads(manifest.to_json()).items() >= unknown.items()
        assert read(**unknown).replace(epoch=9).extra == unknown

    def test_fields_of_our_own_are_extra_fields(self) -> None:
        manifest = read(writer="w", generation=3, state_bytes=7, timeline="t")
        assert (manifest.generation, manifest.state_bytes) == (3, 7)
        assert manifest.is_ours
        assert not read(of_tomorrow=1).is_ours
        assert SEAMARK_FIELDS.isdisjoint(NAMED_FIELDS)

    @pytest.mark.parametrize("wrong", [True, "3", 1.5, None, [], {}])
    def test_a_generation_or_size_of_the_wrong_kind_counts_as_none(self, wrong: object) -> None:
        manifest = read(generation=wrong, state_bytes=wrong)
        assert (manifest.generation, manifest.state_bytes) == (0, None)

    def test_extra_fields_can_be_added_and_removed(self) -> None:
        manifest = read(a=1).with_extra(b=2)
        assert manifest.extra == {"a": 1, "b": 2}
        assert manifest.with_extra(a=None).extra == {"b": 2}

    @pytest.mark.parametrize("name", FIELDS)
    def test_an_extra_field_may_not_repeat_a_named_one(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match=name):
            CheckpointManifest.new(1, 1, extra={name: 1})

    def test_a_manifest_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            CheckpointManifest.new(1, 1).epoch = 2  # type: ignore[misc]

    def test_a_document_says_each_thing_once(self) -> None:
        text = read(writer="w", of_tomorrow=1).to_json()
        pairs: list[str] = []
        json.loads(text, object_pairs_hook=lambda found: pairs.extend(name for name, _ in found))
        assert len(pairs) == len(set(pairs))


class TestBounds:
    U64 = ("checkpoint_id", "epoch", "timestamp_ms", "wal_position", "size_bytes", "pipeline_hash")

    @pytest.mark.parametrize("name", [*U64, "parent_id"])
    def test_u64(self, name: str) -> None:
        for good in (0, 1, 2**63, 2**64 - 1):
            assert getattr(read(**{name: good}), name) == good
        wrong: list[Any] = [-1, 2**64, 10**30, 1.5, "1", True, [], {}]
        for bad in wrong:
            assert refused(json.dumps({**SMALLEST, name: bad}).encode())

    def test_i64(self) -> None:
        for good in (-(2**63), -1, 0, 2**63 - 1):
            assert read(watermark=good).watermark == good
            assert read(source_watermarks={"a": good}).source_watermarks == {"a": good}
        for bad in (-(2**63) - 1, 2**63):
            assert refused(json.dumps({**SMALLEST, "watermark": bad}).encode())
            assert refused(json.dumps({**SMALLEST, "source_watermarks": {"a": bad}}).encode())

    @pytest.mark.parametrize(
        ("name", "largest"), [("version", 2**32 - 1), ("vnode_count", 2**16 - 1)]
    )
    def test_narrower_fields(self, name: str, largest: int) -> None:
        assert getattr(read(**{name: largest}), name) == largest
        for bad in (-1, largest + 1):
            assert refused(json.dumps({**SMALLEST, name: bad}).encode())

    @pytest.mark.parametrize(
        "members",
        [
            {"sink_epochs": {"a": 2**64}},
            {"sink_epochs": {"a": -1}},
            {"per_core_wal_positions": [1, 2**64]},
            {"source_offsets": {"a": {"epoch": 2**64}}},
            {"source_offsets": {"a": {"offsets": {"p": 1}}}},
            {"operator_states": {"a": {"external_offset": -1}}},
            {"operator_states": {"a": {"external": True, "external_length": 2**64}}},
            {"inflight_data": {"a": [{"input_id": -1, "data_b64": ""}]}},
            {"inflight_data": {"a": [{"data_b64": ""}]}},
            {"source_names": "text"},
            {"source_names": None},
            {"is_incremental": 1},
            {"state_checksum": 1},
        ],
    )
    def test_what_is_inside_is_checked_too(self, members: dict[str, Any]) -> None:
        assert refused(json.dumps({**SMALLEST, **members}).encode())

    @pytest.mark.parametrize(
        "fields",
        [
            {"epoch": -1},
            {"epoch": 2**64},
            {"epoch": True},
            {"epoch": "1"},
            {"epoch": 1.0},
            {"watermark": 2**63},
            {"pipeline_hash": -1},
            {"parent_id": 2**64},
            {"vnode_count": 2**16},
            {"sink_epochs": {"a": -1}},
            {"source_watermarks": {"a": 2**63}},
            {"per_core_wal_positions": [-1]},
        ],
    )
    def test_a_value_out_of_bounds_is_refused_when_made_in_python(
        self, fields: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInputError):
            CheckpointManifest(**{**SMALLEST, **fields})
        with pytest.raises(ValueError, match=r".+"):
            CheckpointManifest(**SMALLEST).replace(**fields)


class TestFindings:
    def test_nothing_looks_wrong_in_a_good_one(self) -> None:
        manifest = CheckpointManifest.new(
            2,
            1,
            source_names=["a"],
            source_offsets={"a": ConnectorCheckpoint({"p": "1"})},
            sink_epochs={"s": 1},
            sink_commit_statuses={"s": SinkCommitStatus.pending()},
            is_incremental=True,
            parent_id=1,
            operator_states={"o": OperatorCheckpoint.in_sidecar(0, 5)},
            extra={"state_bytes": 5},
        )
        assert manifest.validate() == []
        assert manifest.validate(expected_vnode_count=256) == []

    @pytest.mark.parametrize(
        ("members", "finding"),
        [
            ({"version": 0}, "manifest version is 0"),
            ({"checkpoint_id": 0}, "checkpoint_id is 0"),
            ({"epoch": 0}, "epoch is 0"),
            ({"timestamp_ms": 0}, "timestamp_ms is 0 (missing creation time)"),
            ({"vnode_count": 0}, "vnode_count is 0 (missing or legacy checkpoint)"),
            (
                {"sink_epochs": {"a": 1}, "sink_commit_statuses": {"b": "Pending"}},
                "sink 'a' has epoch but no commit status",
            ),
            (
                {"source_names": ["a"], "source_offsets": {"b": {}}},
                "source_offsets contains 'b' not in source_names",
            ),
            ({"is_incremental": True}, "incremental checkpoint has no parent_id"),
            ({"parent_id": 2}, "parent_id 2 is not older than checkpoint 2"),
            (
                {
                    "state_bytes": 9,
                    "operator_states": {
                        "o": {"external": True, "external_offset": 5, "external_length": 5}
                    },
                },
                "operator 'o' refers to bytes 5 to 10 of a state of 9 bytes",
            ),
            ({"source_names": ["../up"]}, "source name '../up' could leave its directory"),
            ({"sink_names": [""]}, "sink name '' is empty"),
            ({"table_offsets": {"a/b": {}}}, "table name 'a/b' could leave its directory"),
            ({"inflight_data": {"..": []}}, "operator name '..' could leave its directory"),
            (
                {"table_store_checkpoint_path": "a/../../b"},
                "table_store_checkpoint_path 'a/../../b' could leave its directory",
            ),
            (
                {"state_object": "/etc/passwd"},
                "state_object '/etc/passwd' could leave its directory",
            ),
            ({"state_object": 7}, "state_object 7 is not a path"),
        ],
    )
    def test_each_finding(self, members: dict[str, Any], finding: str) -> None:
        assert read(**{"vnode_count": 256, **members}).validate() == [finding]

    def test_statuses_and_names_are_compared_only_where_there_are_any(self) -> None:
        assert read(vnode_count=1, sink_epochs={"a": 1}).validate() == []
        assert read(vnode_count=1, source_offsets={"b": {}}).validate() == []

    def test_the_number_of_partitions_is_compared_only_when_given(self) -> None:
        assert read(vnode_count=64).validate() == []
        assert read(vnode_count=64).validate(32) == [
            "vnode_count mismatch: checkpoint has 64, runtime expects 32"
        ]
