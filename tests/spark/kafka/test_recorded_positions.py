"""The positions of a source that several leaves of a plan read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.spark.kafka import sources
from seamark.spark.kafka.lag import latest_by_source, recorded_lag
from seamark.spark.kafka.positions import Offsets
from seamark.spark.kafka.recorded_positions import highest_position, lines_of, lowest_position
from seamark.spark.kafka.sources import KafkaSources

FIRST, SECOND = '{"t":{"0":120,"1":100}}', '{"t":{"0":125,"1":90,"2":4}}'


def test_each_leaf_has_its_line() -> None:
    at = ConnectorCheckpoint({}, 1, {"line": FIRST, "line#2": SECOND, "other": "x"})
    assert lines_of(at) == [FIRST, SECOND]
    assert lines_of(ConnectorCheckpoint({}, 1, {})) == []


def test_the_lowest_and_the_highest_position_are_chosen_by_partition() -> None:
    assert lowest_position([FIRST, SECOND]) == {"t": {0: 120, 1: 90, 2: 4}}
    assert highest_position([FIRST, SECOND]) == {"t": {0: 125, 1: 100, 2: 4}}
    assert lowest_position([]) is None


def test_lag_is_that_of_the_leaf_that_is_furthest_behind() -> None:
    latest = latest_by_source(["trades", "trades"], ['{"t":{"0":130}}', '{"t":{"0":128}}'])
    manifest = CheckpointManifest.new(
        1,
        epoch=1,
        source_offsets={"trades": ConnectorCheckpoint({}, 1, {"line": FIRST, "line#2": SECOND})},
        source_latest=latest,
    )
    assert recorded_lag(manifest) == {"trades": {"t-0": 10, "t-1": 0, "t-2": 0}}


def test_a_consumer_group_gets_the_position_of_the_leaf_that_is_furthest_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed: list[Offsets] = []

    def note(_: Any, __: Any, ___: str, offsets: Offsets, ____: float) -> None:
        committed.append(offsets)

    monkeypatch.setattr(sources, "commit_to_group", note)
    kafka = KafkaSources(cast(Any, None), {"trades": {"kafka.bootstrap.servers": "x:1"}})
    kafka.commit("readers", {"trades": f"{FIRST}\n{SECOND}".encode()})
    assert committed == [{"t": {0: 120, 1: 90, 2: 4}}]
