"""Fields of our own as typed attributes, and our names of LaminarDB's fields."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from seamark.errors import InvalidInputError
from seamark.manifest import NAMED_FIELDS, SEAMARK_FIELDS, CheckpointManifest
from seamark.manifest.checkpoint_manifest import JSON_NAMES
from seamark.manifest.facts import FACTS
from tests.manifest.support.documents import SMALLEST, read

VALUES: dict[str, Any] = {
    "self_checksum": "ab",
    "writer": "driver",
    "generation": 3,
    "timeline": "t",
    "state_bytes": 7,
    "state_object": "state/state-000002-x.bin",
    "supersedes": ((1, 2),),
    "sink_committables": {"bars": {"files": ["a"]}},
    "timings": {"save": 0.5},
    "next_watermark": -5,
    "attempt": "g1-a",
    "fingerprint": "f",
    "structure": {"sinks": {}},
    "sink_guarantees": {"bars": "exactly once"},
    "read_points": {"bars": {"kind": "files", "target": "/data/bars"}},
    "late_read_points": {"2": {"bars": {"kind": "files", "target": "/data/bars"}}},
    "shown_as": "t0",
    "abandoned": ["t0"],
    "leaves": ["trades"],
    "native": {"query_id": "q"},
    "shared_objects": (("3-" + "ab" * 16, 5, "cd" * 32),),
    "added_bytes": 5,
    "restore_bytes": 9,
    "spark_version": "4.0.1",
    "source_ids": {"trades": {"topic": "id"}},
    "source_servers": {"trades": "broker:9092"},
    "source_latest": {"trades": '{"topic":{"0":7}}'},
    "source_times": {"trades": {"topic-0": 1_700_000_000_000}},
    "target_names": {"candles": "bars"},
    "upgrade": {"from": 3, "rows": []},
    "gaps": ({"source": "trades", "epoch": 3},),
    "decision": "1-ab",
    "parent_decision": "1-cd",
    "output_digests": {
        "bars": {
            "rows": 3,
            "digest": "ab" * 16,
            "since": 1,
            "total_rows": 9,
            "total_digest": "cd" * 16,
            "formula": 2,
            "computed_again": [3],
        }
    },
    "fork": {
        "url": "/data/trades",
        "checkpoint_id": 58,
        "timeline": "t",
        "epoch": 57,
        "earlier": [["t0", 12]],
        "pipelines": ["trades"],
        "targets": [["files", "/data/bars"]],
        "consumer_groups": ["shop"],
    },
    "inputs": {"trades": {"read": "ab", "at": "cd"}},
    "consumer_group": "shop",
}
STRUCTS = ("output_digests", "fork", "inputs")
ABSENT: dict[str, Any] = {
    "generation": 0,
    "supersedes": (),
    "shared_objects": (),
    "added_bytes": 0,
    "gaps": (),
}
"""None for all others."""
ALIASED = {
    "batch": 6,
    "state_versions": [7, 7],
    "state_partitions": 2,
    "state_checkpoint": "state/0190",
}


def told(manifest: CheckpointManifest, name: str) -> Any:
    value = getattr(manifest, name)
    return json.loads(msgspec.json.encode(value)) if name in STRUCTS else value


class TestFacts:
    def test_every_field_of_our_own_is_tried_here(self) -> None:
        assert VALUES.keys() == FACTS.keys()
        assert FACTS.keys() - SEAMARK_FIELDS == {"spark_version", "source_ids"}
        assert FACTS.keys().isdisjoint(NAMED_FIELDS | JSON_NAMES.keys())

    @pytest.mark.parametrize("name", FACTS)
    def test_a_fact_is_read_and_written_by_its_name(self, name: str) -> None:
        value = VALUES[name]
        manifest = read(**{name: value})
        assert told(manifest, name) == value
        given = CheckpointManifest.new(2, 3, timestamp_ms=4, **{name: value})
        assert json.loads(given.to_json())[name] == json.loads(json.dumps(value))
        assert told(read().replace(**{name: value}), name) == value

    @pytest.mark.parametrize("name", FACTS)
    def test_a_fact_that_is_absent_or_null_is_none(self, name: str) -> None:
        for manifest in (read(), read(**{name: None}), CheckpointManifest(**SMALLEST)):
            assert getattr(manifest, name) == ABSENT.get(name)

    @pytest.mark.parametrize("name", FACTS)
    @pytest.mark.parametrize("wrong", [True, 1.5, [1], [[2]], -(2**70)])
    def test_a_value_of_another_type_reads_as_none_and_is_kept(
        self, name: str, wrong: object
    ) -> None:
        manifest = read(**{name: wrong})
        assert getattr(manifest, name) == ABSENT.get(name)
        assert json.loads(manifest.to_json())[name] == wrong
        unchecked = {"self_checksum", "spark_version", "source_ids"}
        assert (name in str(read(**{name: wrong}).validate())) is (name not in unchecked)

    def test_other_fields_stay_when_a_fact_is_given(self) -> None:
        manifest = read(of_tomorrow=None, writer="w").replace(attempt="a", writer=None)
        assert manifest.extra == {"of_tomorrow": None, "attempt": "a"}
        both = CheckpointManifest.new(1, 1, extra={"of_tomorrow": 1}, attempt="a", timeline=None)
        assert both.extra == {"of_tomorrow": 1, "attempt": "a"}

    def test_a_fact_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            read().attempt = "b"

    def test_a_name_that_nobody_knows_is_refused(self) -> None:
        with pytest.raises(TypeError, match="atempt"):
            CheckpointManifest.new(1, 1, atempt="a")


class TestReadOnce:
    def test_a_field_is_read_once_and_a_copy_reads_its_own(self) -> None:
        manifest = CheckpointManifest.new(1, 1, timestamp_ms=1, timings={"save": 1.0})
        stored = manifest.to_json()
        assert manifest.timings is manifest.timings
        assert manifest.gaps == ()
        assert manifest.to_json() == stored
        assert manifest == CheckpointManifest.from_json(stored)
        assert manifest.replace(timings={"save": 2.0}).timings == {"save": 2.0}
        assert manifest.with_extra(timings=None).timings is None


class TestOurNames:
    @pytest.mark.parametrize("name", JSON_NAMES)
    def test_our_name_and_the_name_in_json_are_one_field(self, name: str) -> None:
        value, json_name = ALIASED[name], JSON_NAMES[name]
        ours = CheckpointManifest.new(2, 3, timestamp_ms=4, **{name: value})
        theirs = CheckpointManifest.new(2, 3, timestamp_ms=4, **{json_name: value})
        assert ours == theirs == read(vnode_count=256).replace(**{name: value})
        assert getattr(ours, name) == getattr(ours, json_name) == value
        document = json.loads(ours.to_json())
        assert document[json_name] == value
        assert name not in document
        with pytest.raises(InvalidInputError, match=f"both of its names: {name}"):
            ours.replace(**{name: value, json_name: value})
