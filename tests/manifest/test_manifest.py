"""The manifest as a document: fields, defaults, bounds, hostile input, round trips."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import DamageError, InvalidInputError
from seamark.manifest import (
    DEFAULT_VNODE_COUNT,
    NAMED_FIELDS,
    SEAMARK_FIELDS,
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)

SMALLEST: dict[str, Any] = {"version": 1, "checkpoint_id": 2, "epoch": 3, "timestamp_ms": 4}
FIELDS = (
    "version checkpoint_id epoch timestamp_ms source_offsets sink_epochs sink_commit_statuses "
    "table_offsets operator_states table_store_checkpoint_path wal_position "
    "per_core_wal_positions watermark source_watermarks source_names sink_names pipeline_hash "
    "inflight_data size_bytes is_incremental parent_id state_checksum vnode_count"
).split()


def read(**members: Any) -> CheckpointManifest:
    return CheckpointManifest.from_json(json.dumps({**SMALLEST, **members}).encode())


def refused(data: bytes) -> bool:
    with pytest.raises(DamageError, match="corrupt manifest"):
        CheckpointManifest.from_json(data)
    return True


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
        for bad in (-1, 2**64, 10**30, 1.5, "1", True, [], {}):
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


class TestHostileDocuments:
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


class TestSinkCommitStatus:
    @pytest.mark.parametrize(
        ("status", "value"),
        [
            (SinkCommitStatus.pending(), "Pending"),
            (SinkCommitStatus.committed(), "Committed"),
            (SinkCommitStatus.failed('no "space" é'), {"Failed": 'no "space" é'}),
            (SinkCommitStatus.failed(""), {"Failed": ""}),
        ],
    )
    def test_json_shapes(self, status: SinkCommitStatus, value: object) -> None:
        manifest = read(sink_commit_statuses={"lake": value})
        assert manifest.sink_commit_statuses == {"lake": status}
        assert json.loads(manifest.to_json())["sink_commit_statuses"] == {"lake": value}
        assert SinkCommitStatus.from_builtins(status.to_builtins()) == status
        assert pickle.loads(pickle.dumps(status)) == status
        assert len({status, SinkCommitStatus.from_builtins(value)}) == 1

    @pytest.mark.parametrize(
        "value",
        ["pending", "Failed", "", None, 1, True, [], {}, {"Failed": 1}, {"Failed": None}]
        + [{"Committed": ""}, {"Failed": "a", "b": "c"}, ["Pending"], {"Pending": None}],
    )
    def test_other_shapes_are_damage(self, value: object) -> None:
        assert refused(json.dumps({**SMALLEST, "sink_commit_statuses": {"a": value}}).encode())
        with pytest.raises(InvalidInputError):
            SinkCommitStatus.from_builtins(value)

    def test_what_a_status_says(self) -> None:
        failed = SinkCommitStatus.failed("full")
        assert (failed.kind, failed.message, failed.is_committed) == ("Failed", "full", False)
        assert SinkCommitStatus.committed().is_committed
        assert SinkCommitStatus.pending().message is None
        assert repr(failed) == "SinkCommitStatus.failed('full')"
        assert repr(SinkCommitStatus.pending()) == "SinkCommitStatus.pending()"
        assert failed != SinkCommitStatus.failed("other") != "Failed"

    def test_a_status_cannot_be_changed_or_made_up(self) -> None:
        with pytest.raises(AttributeError):
            SinkCommitStatus.pending()._kind = "Committed"
        for arguments in (("Done",), ("Failed",), ("Pending", "message")):
            with pytest.raises(InvalidInputError):
                SinkCommitStatus(*arguments)


class TestOperatorCheckpoint:
    def test_inline_is_standard_base64_with_padding(self) -> None:
        operator = OperatorCheckpoint.inline(b"\xfb\xff\xfe\x00")
        assert operator == OperatorCheckpoint(state_b64="+//+AA==")
        assert operator.decode_inline() == b"\xfb\xff\xfe\x00"

    def test_empty_state_is_inline_and_not_absent(self) -> None:
        assert OperatorCheckpoint.inline(b"") == OperatorCheckpoint(state_b64="")
        assert OperatorCheckpoint.inline(b"").decode_inline() == b""
        assert OperatorCheckpoint().decode_inline() is None

    def test_external_is_a_range(self) -> None:
        operator = OperatorCheckpoint.in_sidecar(10, 20)
        assert operator.decode_inline() is None
        assert json.loads(msgspec.json.encode(operator)) == {
            "state_b64": None,
            "external": True,
            "external_offset": 10,
            "external_length": 20,
        }
        for offset, length in ((-1, 1), (1, -1), (2**64, 1), (0, 2**64)):
            with pytest.raises(InvalidInputError):
                OperatorCheckpoint.in_sidecar(offset, length)

    @pytest.mark.parametrize(("size", "inline"), [(0, True), (9, True), (10, True), (11, False)])
    def test_the_threshold_is_the_largest_inline_size(self, size: int, inline: bool) -> None:
        data = b"x" * size
        operator, chunk = OperatorCheckpoint.from_bytes(data, threshold=10, offset=5)
        if inline:
            assert (operator.decode_inline(), chunk) == (data, None)
        else:
            assert (operator, chunk) == (OperatorCheckpoint.in_sidecar(5, size), data)

    @pytest.mark.parametrize("text", ["x", "====", "a b=", "aGk", "aGk=\n", "aGk-", "é"])
    def test_text_that_is_not_base64_is_damage_and_never_empty_state(self, text: str) -> None:
        with pytest.raises(DamageError, match="base64"):
            OperatorCheckpoint(state_b64=text).decode_inline()


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
