"""Positions told to a consumer group after each epoch, and measured: never in an epoch's way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from seamark.pipeline.telemetry import source_follower
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.pipeline.telemetry.source_follower import SourceFollower
from seamark.spark.kafka.positions import Offsets, PartitionEnds, PositionStatus


class Sources:
    """Notes what it is told; ``gate`` holds it up."""

    def __init__(self, error: Exception | None = None) -> None:
        self.committed: list[tuple[str, Mapping[str, bytes]]] = []
        self.looked_up: list[Mapping[str, Offsets]] = []
        self.gate = threading.Event()
        self.gate.set()
        self._error = error

    def commit(self, group: str, positions: Mapping[str, bytes]) -> None:
        self.gate.wait()
        self.committed.append((group, positions))
        if self._error is not None:
            raise self._error

    def measure(self, positions: Mapping[str, bytes]) -> Mapping[str, list[PositionStatus]]:
        status = PositionStatus(
            topic="t",
            partition=0,
            wanted=int(positions["trades"]),
            ends=PartitionEnds(0, 100),
            age_ms=5000,
            left_ms=60_000,
        )
        return {"trades": [status]}

    def times(self, rows: Mapping[str, Offsets]) -> dict[str, dict[str, int]]:
        self.gate.wait()
        self.looked_up.append(rows)
        return {name: {"t-0": 1000 + parts["t"][0]} for name, parts in rows.items()}


def test_the_end_of_a_run_waits_until_the_newest_positions_are_told() -> None:
    sources = Sources()
    sources.gate.clear()
    follower = SourceFollower(sources, "readers", None)
    for number in range(50):
        follower.follow({"trades": b"%d" % number})
    sources.gate.set()
    follower.close()
    assert sources.committed[-1] == ("readers", {"trades": b"49"})
    assert len(sources.committed) <= 3, "what is overtaken is passed over"


def test_lag_age_and_the_time_left_are_measured_by_partition() -> None:
    registry = CollectorRegistry()
    metrics = PipelineMetrics("orders", registry)
    follower = SourceFollower(Sources(), None, metrics)
    labels = {"pipeline": "orders", "source": "trades", "topic": "t", "partition": "0"}
    follower.follow({"trades": b"70"})
    while registry.get_sample_value("seamark_source_retention_left_seconds", labels) is None:
        pass
    follower.close()
    values = {
        name: registry.get_sample_value(f"seamark_source_{name}", labels)
        for name in ("lag_rows", "position_age_seconds", "retention_left_seconds")
    }
    assert values == {
        "lag_rows": 30,
        "position_age_seconds": 5,
        "retention_left_seconds": 60,
    }


def test_lag_is_measured_also_while_no_epoch_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_follower, "_MEASURE_EVERY", 0.01)
    sources = Sources()
    measured = threading.Semaphore(0)
    measure = sources.measure

    def counted(positions: Mapping[str, bytes]) -> Mapping[str, list[PositionStatus]]:
        measured.release()
        return measure(positions)

    monkeypatch.setattr(sources, "measure", counted)
    follower = SourceFollower(sources, "readers", PipelineMetrics("orders", CollectorRegistry()))
    follower.follow({"trades": b"70"})
    for _ in range(5):
        assert measured.acquire(timeout=280)
    follower.close()
    assert sources.committed == [("readers", {"trades": b"70"})], "it is told once"


def test_the_times_of_the_rows_that_come_next_are_read_beside_the_epoch() -> None:
    sources = Sources()
    sources.gate.clear()
    follower = SourceFollower(sources, None, None)
    unread = {"trades": {"t": {0: 70}}}
    follower.look_up(unread)
    assert follower.times_of(unread) == {}, "an epoch never waits for it"
    sources.gate.set()
    while not follower.times_of(unread):
        pass
    assert follower.times_of(unread) == {"trades": {"t-0": 1070}}
    assert follower.times_of({"trades": {"t": {0: 71}}}) == {}, "those of another position"
    follower.close()


def test_nothing_is_looked_up_when_all_was_read_nor_for_each_of_many_short_epochs() -> None:
    sources = Sources()
    follower = SourceFollower(sources, None, None)
    follower.look_up({})
    first, *others = ({"trades": {"t": {0: number}}} for number in range(20))
    follower.look_up(first)
    while not follower.times_of(first):
        pass
    for each in others:
        follower.look_up(each)
    follower.close()
    assert sources.looked_up[0] == first
    assert len(sources.looked_up) < len(others), "a second has not passed for each of them"


def test_a_kafka_that_refuses_is_told_once_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sources = Sources(RuntimeError("the group has members"))
    follower = SourceFollower(sources, "readers", None)
    with caplog.at_level(logging.WARNING, "seamark.pipeline"):
        for number in (1, 2, 3):
            follower.follow({"trades": b"%d" % number})
            while len(sources.committed) < number:
                pass
        follower.close()
    told = [record for record in caplog.records if "consumer group 'readers'" in record.message]
    assert len(told) == 1


def test_rows_that_retention_is_about_to_delete_are_a_warning_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Old(Sources):
        def measure(self, positions: Mapping[str, bytes]) -> Mapping[str, list[PositionStatus]]:
            found = super().measure(positions)
            return {name: [replace(s, kept_ms=3_600_000) for s in found[name]] for name in found}

    follower = SourceFollower(Old(), None, None)
    with caplog.at_level(logging.WARNING, "seamark.pipeline"):
        follower.follow({"trades": b"70"})
        while not caplog.records:
            pass
        follower.follow({"trades": b"80"})
        follower.close()
    [told] = [record.getMessage() for record in caplog.records]
    assert told == (
        "source trades: retention reaches the next row of t-0 in 1 min; 30 rows are to be read"
    )
