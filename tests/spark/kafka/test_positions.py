"""Positions in Kafka: which are lost and why, how far behind they are, when retention comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.spark.kafka.positions import (
    Loss,
    PartitionEnds,
    TopicFacts,
    line_of,
    lost_positions,
    parsed,
    statuses,
)

HOUR = 3_600_000
DAY = 24 * HOUR


def topic(earliest: int, latest: int, topic_id: str = "one", **more: int) -> dict[str, TopicFacts]:
    ends = {0: PartitionEnds(earliest, latest)}
    return {"trades": TopicFacts(topic_id=topic_id, partitions=ends, **more)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "facts", "loss", "rows"),
    [
        (100, topic(100, 100), None, None),
        (100, topic(0, 900), None, None),
        (120, topic(500, 900), Loss.EXPIRED, 380),
        (901, topic(0, 900), Loss.AHEAD, None),
        (120, topic(0, 900, "another"), Loss.OTHER_TOPIC, 120),
        (120, topic(0, 50, "another"), Loss.OTHER_TOPIC, 50),
        (120, {"quotes": topic(0, 1)["trades"]}, Loss.NO_TOPIC, None),
    ],
)
def test_a_position_is_lost_when_its_row_is_not_the_next_one_any_more(
    wanted: int, facts: dict[str, TopicFacts], loss: Loss | None, rows: int | None
) -> None:
    lost = lost_positions("trades", {"trades": {0: wanted}}, facts, {"trades": "one"})
    if loss is None:
        assert lost == []
        return
    [one] = lost
    assert (one.loss, one.rows) == (loss, rows)
    assert f"trades-0: {wanted} is wanted" in str(one)


def test_a_partition_that_is_gone_is_lost_and_a_new_one_is_not() -> None:
    [lost] = lost_positions("trades", {"trades": {0: 5, 1: 5}}, topic(0, 9), {})
    assert (lost.partition, lost.loss) == (1, Loss.NO_PARTITION)
    assert lost_positions("trades", {"trades": {}}, topic(0, 9), {}) == []


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.dictionaries(st.integers(0, 10**6), st.integers(0, 2**62), min_size=1),
        min_size=1,
    )
)
def test_a_line_of_the_offset_log_is_read_as_it_was_written(
    offsets: dict[str, dict[int, int]],
) -> None:
    assert parsed(line_of(offsets)) == offsets
    assert json.loads(line_of(offsets))


@pytest.mark.parametrize(
    "line",
    ["-", "7", "{}", "[]", '{"logOffset":3}', '{"a":{"0":-1}}', '{"a":{"x":1}}', "[" * 99999],
)
def test_a_line_of_another_source_is_not_taken_for_kafkas(line: str) -> None:
    assert parsed(line) is None


def test_lag_age_and_the_time_left_come_from_one_row_of_each_partition() -> None:
    now = 100 * DAY
    facts = TopicFacts(
        topic_id="one",
        partitions={0: PartitionEnds(1000, 5000), 1: PartitionEnds(0, 70), 2: PartitionEnds(0, 9)},
        retention_ms=7 * DAY,
        times={0: now - 6 * DAY},
    )
    behind, done, gone = statuses({"trades": {0: 2000, 1: 70, 3: 4}}, {"trades": facts}, now)
    assert (behind.lag, behind.age_ms, behind.left_ms) == (3000, 6 * DAY, DAY)
    assert (done.lag, done.age_ms, done.left_ms) == (0, 0, None)
    assert (gone.lag, gone.age_ms, gone.left_ms) == (None, None, None)


def test_retention_by_size_is_reached_at_the_rate_of_the_writers() -> None:
    facts = topic(1000, 5000, retention_bytes=1 << 30)["trades"]
    times = TopicFacts(
        topic_id="one",
        partitions=facts.partitions,
        retention_bytes=facts.retention_bytes,
        times={0: 10 * DAY},
    )
    [status] = statuses({"trades": {0: 3000}}, {"trades": times}, 10 * DAY + 2 * HOUR)
    # 2000 rows came in two hours, and 2000 lie before the position
    assert status.left_ms == 2 * HOUR
    [first] = statuses({"trades": {0: 1000}}, {"trades": times}, 10 * DAY + 2 * HOUR)
    assert first.left_ms == 0
