"""Epochs that read a real Kafka are run again at their offsets, as long as Kafka has the rows."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.errors import SeamarkError
from tests.integration.support.kafka import Topics
from tests.integration.test_kafka_positions import Reader, reader, spark, topics
from tests.pipeline.support.trees import tree_of

if TYPE_CHECKING:
    from seamark.pipeline.replay.result import Replay

__all__ = ["reader", "spark", "topics"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def values(again: Replay) -> list[str]:
    return sorted(row.value for row in again.outputs["all"].collect())


def test_epochs_of_kafka_come_out_as_they_were_until_their_rows_are_deleted(
    reader: Reader,
    topics: Topics,
    tmp_path: Path,
) -> None:
    topic = topics.create(f"replayed-{uuid.uuid4().hex}")
    group = f"group-{uuid.uuid4().hex}"
    settings = {"consumer_group": group}
    for rows in (["a", "b"], ["c"], ["d", "e", "f"]):
        topics.send(topic, rows)
        reader(settings, subscribe=topic).run()
    topics.send(topic, ["later"])
    before, offsets = tree_of(tmp_path), topics.group_offsets(group)
    found = [reader(settings, subscribe=topic).replay(epoch) for epoch in (1, 2, 3)]
    assert [values(again) for again in found] == [["a", "b"], ["c"], ["d", "e", "f"]]
    assert all(again.is_equal for again in found)
    assert topics.group_offsets(group) == offsets
    topics.delete_rows(topic, 3)
    with pytest.raises(SeamarkError, match="epoch 1 could not be run again"):
        reader(settings, subscribe=topic).replay(1)
    assert reader(settings, subscribe=topic).replay(3).is_equal
    assert tree_of(tmp_path) == before


def test_an_epoch_after_a_gap_begins_where_it_began(
    reader: Reader,
    topics: Topics,
) -> None:
    topic = topics.create(f"replayed-{uuid.uuid4().hex}")
    topics.send(topic, ["a", "b"])
    reader(subscribe=topic).run()
    topics.send(topic, ["lost", "c", "d"])
    topics.delete_rows(topic, 3)
    reader({"reanchor": {"trades": "earliest"}}, subscribe=topic).run()
    again = reader(subscribe=topic).replay(2)
    assert values(again) == ["c", "d"]
    assert again.is_equal
