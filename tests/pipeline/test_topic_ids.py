"""The ids of topics that epochs read, also of those that came after the start. Without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import PositionUnavailable, RefusedError, SourceSilentError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.pipeline.declaration.source_positions import check_positions
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.pipeline.epoch.topic_ids import (
    ids_at,
    note_late_topics,
    require_same_topics,
    require_topics_of_plan,
    topic_ids_at,
)
from seamark.pipeline.recovery.working_dirs import WorkingDirs
from seamark.sinks.contract import Guarantee
from seamark.spark.kafka.positions import PartitionEnds, TopicFacts, Topics
from seamark.store.plans import StoredPlan
from tests.checkpoint_dir.support.directories import offsets_text

LINE = '{"a":{"0":1},"b":{"0":2}}'


def topics(**ids: str) -> Topics:
    return {
        name: TopicFacts(topic_id=topic_id, partitions={0: PartitionEnds(0, 9)})
        for name, topic_id in ids.items()
    }


class Kafka:
    """Answers with its topics, and counts how often."""

    def __init__(self, **ids: str) -> None:
        self.ids, self.asked = ids, 0

    def __call__(self) -> Mapping[str, Topics]:
        self.asked += 1
        return {"trades": topics(**self.ids)}


def identity(kafka: Kafka | None = None, *, idempotent: bool = True, **ids: str) -> Any:
    guarantee = Guarantee.IDEMPOTENT if idempotent else Guarantee.AT_LEAST_ONCE
    return PipelineIdentity(
        name="shop",
        structure={},
        leaves=("trades",),
        topics={"trades": topics(**ids)},
        topics_again=kafka,
        guarantees={"fn": guarantee.value},
    )


def plan(source_ids: dict[str, Any], follows: str = "") -> StoredPlan:
    return StoredPlan(
        timeline="a" * 32,
        epoch=1,
        fingerprint="",
        follows=follows,
        leaves=("trades",),
        offsets="",
        source_ids=source_ids,
    )


def test_a_topic_that_comes_after_the_start_and_is_made_again_is_not_taken_for_the_old_one() -> (
    None
):
    started, history = identity(Kafka(a="1", b="2"), a="1"), EpochHistory("t", 1, 1)
    note_late_topics(started, [LINE], history)
    assert ids_at(started, history) == {"trades": {"a": "1", "b": "2"}}
    newest = CheckpointManifest.new(
        1,
        epoch=1,
        source_offsets={"trades": ConnectorCheckpoint({}, 1, {"line": LINE})},
        source_ids=ids_at(started, history),
    )
    lost = check_positions(newest, identity(a="1", b="3"), "strict", {}).lost
    assert [(one.topic, one.rows) for one in lost] == [("b", 2)]
    assert not check_positions(newest, identity(a="1", b="2"), "strict", {}).lost


def test_kafka_is_asked_once_for_a_topic_that_comes_after_the_start() -> None:
    kafka, history = Kafka(a="1", b="2"), EpochHistory("t", 1, 1)
    for _ in range(3):
        note_late_topics(identity(kafka, a="1"), ['{"a":{"0":1}}'], history)
    assert kafka.asked == 0
    for _ in range(3):
        note_late_topics(identity(kafka, a="1"), [LINE], history)
    assert kafka.asked == 1


def test_a_late_topic_keeps_the_id_that_it_was_first_read_with() -> None:
    kafka, history = Kafka(a="1", b="2"), EpochHistory("t", 1, 1)
    note_late_topics(identity(kafka, a="1"), [LINE], history)
    kafka.ids = {"a": "1", "b": "3", "c": "4"}
    note_late_topics(identity(kafka, a="1"), ['{"a":{"0":1},"b":{"0":2},"c":{"0":1}}'], history)
    assert history.late_topics == {"trades": {"b": "2", "c": "4"}}


def test_an_epoch_with_a_topic_of_unknown_id_waits_for_a_kafka_that_does_not_answer() -> None:
    def silent() -> Mapping[str, Topics]:
        raise SourceSilentError("Kafka does not answer")

    with pytest.raises(SourceSilentError):
        note_late_topics(identity(silent, a="1"), [LINE], EpochHistory("t", 1, 1))  # type: ignore[arg-type]


def test_a_source_that_was_not_looked_at_is_not_asked_for_its_topics() -> None:
    kafka = Kafka(a="1")
    unlooked = PipelineIdentity(
        name="shop", structure={}, leaves=("trades", "-"), topics_again=kafka
    )
    note_late_topics(unlooked, [LINE, "-"], EpochHistory("t", 1, 1))
    assert kafka.asked == 0


def test_a_function_does_not_get_rows_of_a_topic_that_was_made_again_under_the_old_key() -> None:
    with pytest.raises(RefusedError, match="epoch 1 was started on rows of the topic 'a'"):
        require_topics_of_plan(plan({"trades": {"a": "1"}}), identity(a="2"), ("fn",), "store")


@pytest.mark.parametrize(
    "now",
    [identity(a="1", b="9"), identity(b="9"), identity(a="2", idempotent=False)],
    ids=["same topic", "topic is gone", "function promises nothing"],
)
def test_other_topics_keep_no_epoch_from_running_again(now: PipelineIdentity) -> None:
    require_topics_of_plan(plan({"trades": {"a": "1"}}, "the epoch before"), now, ("fn",), "store")


def test_no_first_epoch_runs_on_the_plan_for_a_topic_that_was_made_again(tmp_path: Path) -> None:
    now = identity(a="2", idempotent=False)
    with pytest.raises(RefusedError, match="epoch 1 was started on rows of the topic 'a'"):
        require_topics_of_plan(plan({"trades": {"a": "1"}}), now, ("fn",), "store")
    place = LocalCopy(str(tmp_path))
    then = WorkingDirs(place, 1, identity(a="1"))
    then.own.make()
    then.mark_ready("t")
    again = WorkingDirs(place, 2, identity(a="2"))
    assert again.first_plans("t") == {}
    offsets = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{LINE}'
    then.own.write("offsets/0", offsets.encode())
    assert [*WorkingDirs(place, 2, identity(a="1")).first_plans("t")] == [0]
    for _ in range(2):
        with pytest.raises(PositionUnavailable, match="'a' was deleted and made again since"):
            again.first_plans("t")
        then.clear_own()  # a start has died there; what it saved tells as well
    assert WorkingDirs(place, 2, identity()).first_plans("t") != {}  # it did not look


@pytest.mark.parametrize("line", ["-", LINE], ids=["was added", "was read before"])
def test_no_added_source_begins_on_the_plan_for_a_topic_that_was_made_again(
    tmp_path: Path, line: str
) -> None:
    place = LocalCopy(str(tmp_path))
    then = WorkingDirs(place, 1, identity(a="1"))
    for batch, own in enumerate((line, LINE)):
        then.own.write(f"offsets/{batch}", offsets_text(own).encode())
    then.mark_ready("t")
    found = then.newest_ready()
    assert found is not None
    again = WorkingDirs(place, 2, identity(a="2"))
    if line == LINE:  # its checkpoint tells
        assert [*again.plans_in(*found, 0, "t")] == [1]
        return
    with pytest.raises(PositionUnavailable, match="'a' was deleted and made again since"):
        again.plans_in(*found, 0, "t")
    with pytest.raises(PositionUnavailable, match="'a' was deleted and made again since"):
        again.saved_plans("t")  # a start has died there


def test_a_plan_of_an_earlier_version_or_with_odd_ids_keeps_no_epoch_from_running_again() -> None:
    for odd in ({}, {"trades": ["a"]}, {"trades": {"a": 7}}):
        require_topics_of_plan(plan(odd), identity(a="2"), ("fn",), "store")


def test_the_ids_of_folders_are_no_part_of_a_plan() -> None:
    files = PipelineIdentity(
        name="shop", structure={}, leaves=("in",), folders={"in": {"/data/in": "64-7"}}
    )
    assert ids_at(files, EpochHistory("t", 1, 1)) == {"in": {"/data/in": "64-7"}}
    assert topic_ids_at(files, EpochHistory("t", 1, 1)) == {}


def test_a_topic_of_the_first_epoch_that_is_made_again_during_an_outage_is_told() -> None:
    known = {"trades": {"a": "1"}}
    require_same_topics(known, {"trades": topics(a="1", b="2"), "other": topics(a="5")})
    with pytest.raises(PositionUnavailable, match="'a' was deleted and made again"):
        require_same_topics(known, {"trades": topics(a="2")})
