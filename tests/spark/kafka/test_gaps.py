"""Going on after rows were lost: only lost positions move, the record says what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.spark.kafka.gaps import check_anchors, planned_gap, position_error
from seamark.spark.kafka.positions import PartitionEnds, TopicFacts, line_of, lost_positions
from seamark.spark.source_gaps import Anchor, Gap, gap_texts, planned_texts

OFFSETS = {"trades": {0: 120, 1: 700, 2: 3}}
TOPICS = {
    "trades": TopicFacts(
        topic_id="one", partitions={0: PartitionEnds(500, 900), 1: PartitionEnds(600, 800)}
    )
}
LOST = lost_positions("trades", OFFSETS, TOPICS, {})


def gap(anchor: Anchor) -> Gap:
    return planned_gap({line_of(OFFSETS): LOST}, anchor)


def test_only_lost_positions_move_and_a_partition_that_is_gone_is_dropped() -> None:
    assert gap("earliest").new_lines == ['{"trades":{"0":500,"1":700}}']
    assert gap("latest").new_lines == ['{"trades":{"0":900,"1":700}}']
    assert gap({"trades": {"0": 640}}).new_lines == ['{"trades":{"0":640,"1":700}}']


def test_the_record_counts_the_rows_that_were_never_read() -> None:
    document = gap("earliest").document(7, 1_700_000_000_000)
    assert document["moves"][0] == {
        "topic": "trades",
        "partition": 0,
        "from": 120,
        "to": 500,
        "rows": 380,
        "why": "expired",
    }
    first, second = gap_texts([document])
    assert "gap after epoch 7: trades-0 went on at 500 instead of 120, 380 rows were never" in first
    assert "trades-2 was at 3 and is not there any more" in second
    assert "380 rows are never read" in planned_texts([gap("earliest")])[0]


def test_a_record_that_cannot_be_read_is_still_told() -> None:
    assert "cannot be read" in gap_texts([{"moves": [{}]}])[0]


@pytest.mark.parametrize(
    "offsets",
    [
        {"trades": {0: 640, 1: 650}},  # 1 can be read: nothing may move it
        {"trades": {1: 650}},
        {"trades": {0: 499}},
        {"trades": {0: 901}},
    ],
)
def test_offsets_that_would_move_another_position_or_lead_nowhere_are_refused(
    offsets: dict[str, dict[int, int]],
) -> None:
    with pytest.raises(RefusedError):
        gap(offsets)


@pytest.mark.parametrize(
    "given", [[], {"trades": "oldest"}, {"trades": {"t": {0: -1}}}, {"trades": {"t": 5}}, {"a": {}}]
)
def test_what_is_no_anchor_is_refused_when_the_pipeline_is_declared(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="reanchor says"):
        check_anchors(given)


def test_the_error_names_every_number_and_the_ways_on() -> None:
    line = '{"trades":{"0":120,"1":700,"2":3}}'
    error = position_error(LOST, {"trades": line})
    assert isinstance(error, PositionUnavailable)
    assert error.source == "trades"
    assert error.requested == line.encode()
    assert error.earliest == b'{"trades":{"0":500}}'
    text = str(error)
    assert "trades-0: 120 is wanted, earliest is 500, latest is 900: 380 rows are lost" in text
    assert "trades-2: 3 is wanted, and the partition is gone" in text
    for way in ("reanchor={'trades': 'earliest'}", "'latest'", "auto_reset"):
        assert way in text
