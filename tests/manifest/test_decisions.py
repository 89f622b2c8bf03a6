"""What is decided is known by a digest, and a change of it afterwards is found."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.manifest.decisions import (
    DECIDED_FACTS,
    chain_findings,
    decision_of,
    edits_of,
    link_of,
    with_decision,
)
from seamark.manifest.facts import FACTS

DIGEST = {
    "rows": 3,
    "digest": "0" * 32,
    "since": 1,
    "total_rows": 3,
    "total_digest": "0" * 32,
}


def chain(length: int = 3) -> dict[int, CheckpointManifest]:
    made: dict[int, CheckpointManifest] = {}
    parent = None
    for number in range(1, length + 1):
        manifest = CheckpointManifest.new(
            number,
            epoch=number,
            parent_id=number - 1 or None,
            sink_names=["bars"],
            timeline="t1",
            output_digests={"bars": {**DIGEST, "rows": number}},
            sink_commit_statuses={"bars": SinkCommitStatus.pending()},
        )
        parent = made[number] = with_decision(manifest, parent)
    return made


def findings(manifests: dict[int, CheckpointManifest]) -> dict[int, str]:
    return chain_findings({number: link_of(each) for number, each in manifests.items()})


def test_a_chain_as_it_was_decided_has_no_finding() -> None:
    manifests = chain()
    assert findings(manifests) == {}
    read = {n: CheckpointManifest.from_json(m.to_json()) for n, m in manifests.items()}
    assert findings(read) == {}


CHANGED: list[dict[str, Any]] = [
    {"epoch": 7},
    {"watermark": 5},
    {"source_names": ["x"]},
    {"operator_states": {"a": OperatorCheckpoint.inline(b"x")}},
    {"output_digests": {"bars": {**DIGEST, "rows": 99}}},
    {"timeline": "t2"},
    {"fingerprint": "f"},
    {"sink_committables": {"bars": {"digest": "x"}}},
]


@pytest.mark.parametrize("change", CHANGED, ids=lambda change: next(iter(change)))
def test_what_is_changed_after_the_decision_is_found(change: dict[str, Any]) -> None:
    manifests = chain()
    manifests[2] = manifests[2].replace(**change)
    assert findings(manifests) == {2: "it was changed after it was decided"}


@pytest.mark.parametrize("change", CHANGED, ids=lambda change: next(iter(change)))
def test_a_replaced_checkpoint_is_found_by_what_follows_it(change: dict[str, Any]) -> None:
    manifests = chain()
    manifests[2] = with_decision(manifests[2].replace(**change), manifests[1])
    assert list(findings(manifests)) == [2]
    assert "checkpoint 3, which follows it, knows another one" in findings(manifests)[2]


def test_what_is_recorded_later_is_no_change() -> None:
    manifests = chain()
    manifests[2] = manifests[2].replace(
        sink_commit_statuses={"bars": SinkCommitStatus.committed()},
        sink_epochs={"bars": 2},
        timings={"write": 1.0},
        read_points={"bars": {"kind": "files", "target": "/x"}},
        size_bytes=77,
    )
    assert findings(manifests) == {}


def test_checkpoints_of_earlier_versions_and_of_newer_ones_are_no_finding() -> None:
    manifests = chain()
    manifests[1] = manifests[1].replace(decision=None)
    del manifests[1]
    manifests[2] = manifests[2].replace(parent_decision=None, decision=None)
    del manifests[3]
    assert findings(manifests) == {}
    newer = chain()[1].replace(decision="9-ff")
    assert findings({1: newer}) == {}


def test_a_checkpoint_that_was_put_in_place_of_a_digested_one_is_found() -> None:
    manifests = chain()
    manifests[1] = manifests[1].replace(decision=None)
    assert list(findings(manifests)) == [1]


def test_values_that_json_does_not_have_are_digested_as_they_are_read() -> None:
    given = CheckpointManifest.new(1, epoch=1, sink_committables={"bars": {"ends": (1, {2: 3})}})
    made = with_decision(given, None)
    assert decision_of(CheckpointManifest.from_json(made.to_json())) == made.decision


def test_every_field_of_ours_is_decided_or_known_to_change() -> None:
    later = {"self_checksum", "decision", "state_object", "timings", "read_points"}
    assert frozenset(FACTS) - DECIDED_FACTS == later | {"late_read_points"}


def test_what_was_edited_in_a_chain_is_told_in_words() -> None:
    one = with_decision(CheckpointManifest.new(1, epoch=1), None)
    two = with_decision(CheckpointManifest.new(2, epoch=2, parent_id=1), one)
    assert edits_of([one, two]) == []
    changed = one.replace(next_watermark=7)
    assert ["was changed after it was decided" in text for text in edits_of([changed])] == [True]
    forged = changed.replace(decision=decision_of(changed))
    assert edits_of([forged]) == [], "nothing that comes after it knows it"
    (told,) = edits_of([forged, two])
    assert told.startswith("checkpoint 1, which this start builds on, was edited: it is not the")
