"""Rows that a source left out, and rows that it has not read yet, in what the commands print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark import ConnectorCheckpoint, open_store
from seamark._common.text import elapsed_text
from seamark.cli.app import run
from seamark.progress.urls import open_progress, rocksdb_url
from seamark.spark.source_gaps import Gap, Move
from tests.cli.support.stores import Commands, save

MOVE = Move(topic="trades", partition=0, wanted=400, goes_on=950, rows=550, loss="expired")
GAP = Gap(source="trades", lines={"": ""}, moves=(MOVE,)).document(5, 1_700_000_000_000)
TOLD = "trades-0 went on at 950 instead of 400, 550 rows were never read"


@pytest.fixture
def with_gap(store: Path) -> Path:
    """Checkpoint 5 records a gap, and 6 is the first epoch after it."""
    line = '{"trades":{"0":950,"1":401}}'
    readable = {"trades-0": "950", "trades-1": "401"}
    at = {"trades": ConnectorCheckpoint(readable, 5, {"line": line})}
    extra: dict[str, Any] = {"gaps": [GAP]}
    with open_store(store) as opened:
        save(opened, 5, source_offsets=at, extra=extra)
        extra |= {"source_latest": {"trades": '{"trades":{"0":1000,"1":2401}}'}}
        extra |= {"source_times": {"trades": {"trades-1": 1_700_000_000_000}}}
        save(opened, 6, source_offsets=at, extra=extra)
    return store


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_gap_is_shown_by_its_own_checkpoint_and_by_every_later_one(
    seamark: Commands, with_gap: Path
) -> None:
    for number in (5, 6):
        assert TOLD in words(seamark("show", with_gap, number))
        assert seamark.json("show", with_gap, number)["gaps"] == [GAP]
    assert "gap" not in seamark("show", with_gap, 4)


def test_a_list_tells_a_gap_at_the_checkpoint_that_made_it(
    seamark: Commands, with_gap: Path
) -> None:
    notes = {row["id"]: row["note"] for row in seamark.json("list", with_gap)["checkpoints"]}
    assert TOLD in notes[5]
    assert notes[6] is None


def test_a_comparison_across_a_gap_tells_it(seamark: Commands, with_gap: Path) -> None:
    assert seamark.json("diff", with_gap, 4, 6)["gaps"] == [GAP]
    assert TOLD in words(seamark("diff", with_gap, 4, 6))
    assert seamark.json("diff", with_gap, 5, 6)["gaps"] == []


def test_lag_is_shown_by_partition_and_summed_up_in_wide_lists(
    seamark: Commands, with_gap: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seamark.json("show", with_gap, 6)["lag"] == {
        "trades": {"trades-0": 50, "trades-1": 2000}
    }
    assert "trades-0: 50 trades-1: 2 000 (the next is" in words(seamark("show", with_gap, 6))
    assert run(["list", str(with_gap), "--wide"]) == 0
    heading, newest, *_ = capsys.readouterr().out.splitlines()
    assert heading.split()[-3:] == ["OFFSETS", "LAG", "AGE"]
    assert "2 050  " in newest
    assert seamark.json("diff", with_gap, 5, 6)["lag"] == {"trades": {"a": None, "b": 2050}}


def test_the_age_of_the_position_is_told_wherever_its_lag_is(
    seamark: Commands, with_gap: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = seamark.json("show", with_gap, 6)
    age = (found["timestamp_ms"] - 1_700_000_000_000) / 1000
    assert found["age_seconds"] == {"trades": {"trades-1": age}}, "of trades-0 it is not known"
    assert f"(the next is {elapsed_text(age)} old)" in words(seamark("show", with_gap, 6))
    newest = seamark.json("list", with_gap)["checkpoints"][0]
    assert newest["age_seconds"] == found["age_seconds"]
    assert run(["list", str(with_gap), "--wide"]) == 0
    first = elapsed_text(age).split(" ")[:2]  # on a narrow screen the rest is on the next line
    assert capsys.readouterr().out.splitlines()[1].endswith(" ".join(first))
    assert seamark.json("diff", with_gap, 5, 6)["age_seconds"] == {"trades": {"a": None, "b": age}}
    assert f"trades – → {elapsed_text(age)}" in words(seamark("diff", with_gap, 5, 6))


def test_sources_tells_lag_and_age_of_the_newest_checkpoint(
    seamark: Commands, with_gap: Path
) -> None:
    age = seamark.json("show", with_gap, 6)["age_seconds"]["trades"]["trades-1"]
    [source] = seamark.json("sources", with_gap)["sources"]
    assert source["lag"] == {"trades-0": 50, "trades-1": 2000}
    assert source["age_seconds"] == {"trades-1": age}
    heading, first, second, *_ = seamark("sources", with_gap).splitlines()
    assert heading.split() == ["SOURCE", "SEQUENCE", "PARTITION", "POSITION", "LAG", "AGE"]
    assert first.split() == ["trades", "6", "trades-0", "950", "50", "–"]
    assert words(second) == f"trades-1 401 2 000 {elapsed_text(age)}"


def test_sources_adds_lag_to_a_progress_store_that_is_at_the_same_epoch(
    seamark: Commands, with_gap: Path
) -> None:
    for epoch, lag in ((5, None), (6, {"trades-0": 50, "trades-1": 2000})):
        url = rocksdb_url(str(with_gap / "progress"))
        with open_progress(url) as progress, progress.session() as session:
            session.stage_checkpoint("trades", epoch, b'{"trades":{"0":950,"1":401}}')
        [source] = seamark.json("sources", with_gap)["sources"]
        assert (source["sequence"], source["lag"]) == (epoch, lag)


def test_sources_adds_no_lag_to_a_position_of_another_history(
    seamark: Commands, with_gap: Path
) -> None:
    """After a rollback a record that nobody has corrected may have the epoch's number."""
    url = rocksdb_url(str(with_gap / "progress"))
    with open_progress(url) as progress, progress.session() as session:
        session.stage_checkpoint("trades", 6, b'{"trades":{"0":700,"1":300}}')
    [source] = seamark.json("sources", with_gap)["sources"]
    assert source["position"] == {"trades": {"0": 700, "1": 300}}
    assert (source["lag"], source["age_seconds"]) == (None, None)
