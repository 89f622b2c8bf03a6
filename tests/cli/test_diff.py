"""The way from one checkpoint to another is told in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seamark import ConnectorCheckpoint, limits, open_store
from seamark.reports.difference import difference
from tests.cli.support.stores import MARK, Commands, save


def test_offsets_state_and_watermark_are_subtracted(seamark: Commands, store: Path) -> None:
    found = seamark.json("diff", store, 1, 3)
    assert found["epochs"] == 2
    assert found["sources"]["trades"]["trades-1"] == {
        "a": "101",
        "b": "301",
        "advance": 200,
        "change": "changed",
    }
    assert found["operators"]["stateStoreSave-0"] == {"a": 6000, "b": 18000, "growth": 12000}
    assert found["watermark"]["advance_ms"] == 2000
    assert found["configuration"] == {}
    shown = seamark("diff", store, 1, 3)
    assert "+2 epochs" in shown
    assert "+200" in shown
    assert "+12 KiB" in shown
    assert "+2 s" in shown


def test_going_back_has_the_other_sign(seamark: Commands, store: Path) -> None:
    found = seamark.json("diff", store, "latest", 2)
    assert found["epochs"] == -2
    assert found["sources"]["trades"]["trades-0"]["advance"] == -200
    assert "-200" in seamark("diff", store, "latest", 2)


def test_changed_sinks_and_configuration_are_named(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        structure = {"sources": {"trades": "kafka"}, "sinks": {"bars": {"target": "/elsewhere"}}}
        save(found, 5, extra={"structure": structure}, pipeline_hash=78, sink_names=["bars"])
    changes = seamark.json("diff", store, 4, 5)["configuration"]
    assert changes == {"sinks.bars.target": {"a": "/bars", "b": "/elsewhere"}}
    assert "/bars  →  /elsewhere" in seamark("diff", store, 4, 5)


def test_positions_that_are_no_numbers_are_compared_as_they_are(
    seamark: Commands, store: Path
) -> None:
    with open_store(store) as found:
        for number, position in ((5, "0/16B3748"), (6, "0/16B3990")):
            offsets = {"orders": ConnectorCheckpoint({"lsn": position}, number)}
            save(found, number, source_offsets=offsets, source_names=["orders"])
    at = seamark.json("diff", store, 5, 6)["sources"]["orders"]["lsn"]
    assert at == {"a": "0/16B3748", "b": "0/16B3990", "advance": None, "change": "changed"}
    assert "changed" in seamark("diff", store, 5, 6)


def test_a_new_source_has_no_position_before(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        offsets = {"orders": ConnectorCheckpoint({"0": "7"}, 5)}
        save(found, 5, source_offsets=offsets, source_names=["orders"])
    found = seamark.json("diff", store, 4, 5)["sources"]
    assert found["orders"]["0"] == {"a": None, "b": "7", "advance": None, "change": "new"}
    assert found["trades"]["trades-0"]["b"] is None


def test_a_new_partition_is_called_new_and_one_that_went_gone(
    seamark: Commands, store: Path
) -> None:
    with open_store(store) as found:
        for number, parts in ((5, ["0", "1"]), (6, ["1", "2"])):
            offsets = {"orders": ConnectorCheckpoint(dict.fromkeys(parts, "7"), number)}
            save(found, number, source_offsets=offsets, source_names=["orders"])
    lines = [line.split() for line in seamark("diff", store, 5, 6).splitlines()]
    assert ["orders", "2", "–", "7", "new"] in lines
    assert ["orders", "0", "7", "–", "gone"] in lines
    assert ["orders", "1", "7", "7", "same"] in lines


def test_a_year_is_told_in_days(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        save(found, 5, watermark=MARK + 5000 + 31_190_300_000)
    shown = seamark("diff", store, 4, 5)
    assert "+360 days 23 h" in shown
    assert "e+" not in shown


@pytest.mark.parametrize("depth", [19, 30, 190, 900])
def test_configuration_nested_however_deep_is_compared_and_shown(
    seamark: Commands, store: Path, depth: int
) -> None:
    with open_store(store) as found:
        for number, inner in ((5, "1"), (6, "2")):
            structure = json.loads('{"a":' * depth + inner + "}" * depth)
            save(found, number, extra={"structure": structure})
    changes = seamark.json("diff", store, 5, 6)["configuration"]
    assert len(changes) == 1
    assert set(next(iter(changes))) == {"a", "."}
    for words in (["diff", store, 5, 6], ["show", store, 5], ["list", store], ["verify", store]):
        seamark(*words)
        seamark.json(*words)


class Compared(dict[str, Any]):
    """A gap that counts how often gaps are held against each other."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = None


def test_very_many_gaps_are_not_held_against_each_other_one_by_one(
    seamark: Commands, store: Path
) -> None:
    before, after = (seamark.json("show", store, number) for number in (3, 4))
    before["gaps"] = [Compared(source="trades", epoch=number) for number in range(300)]
    after["gaps"] = [Compared(source="trades", epoch=number) for number in range(1, 301)]
    assert difference(before, after)["gaps"] == [{"source": "trades", "epoch": 300}]
    assert Compared.times < 600


def test_of_very_many_warnings_the_rest_is_a_number(seamark: Commands, store: Path) -> None:
    gaps = [{"source": number} for number in range(limits.MOST_WARNINGS + 7)]
    with open_store(store) as opened:
        opened.claim()
        save(opened, 5, extra={"gaps": gaps})
    shown = seamark("show", store, 5)
    assert shown.count("warning: a gap") == limits.MOST_WARNINGS
    assert "and 7 more warnings: --json has all of them" in shown
    assert len(seamark.json("show", store, 5)["gaps"]) == len(gaps)
