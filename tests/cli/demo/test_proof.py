"""The demo's proof finds every lost, doubled and changed row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from seamark.cli.app import run
from seamark.cli.demo.pipeline import CHECKPOINTS
from seamark.cli.demo.proof import prove, rows_of_epoch
from seamark.cli.demo.trades import Bar, Trade, closed_bars, latest_trades, trade
from seamark.errors import CheckpointNotFoundError, DamageError
from tests.cli.support.demos import (
    BATCHES,
    by_symbol,
    change_view,
    watermark_of,
    write_commit,
    write_offsets,
    write_rows,
)


def verify(demo: Path) -> int:
    return run(["demo", "--dir", str(demo), "--verify-only"])


def test_a_demo_in_which_nothing_is_missing_is_proven(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(demo) == 0
    shown = capsys.readouterr().out
    assert "  bars             40        40      0            0" in shown
    assert "  large           202       202      0            0" in shown
    assert "  latest           10        10      0            0" in shown
    assert "Exactly once: yes." in shown
    assert f"Checkpoints: {demo}/checkpoints" in shown
    assert max(map(len, shown.splitlines()[:4])) <= 80


def test_the_proof_is_json_when_asked_for(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (demo / "large/epoch=000002/part-00000.parquet").unlink()
    assert run(["demo", "--dir", str(demo), "--verify-only", "--json"]) == 1
    proof = json.loads(capsys.readouterr().out)
    assert proof["exactly_once"] is False
    assert (proof["batches"], proof["trades"]) == (BATCHES, 7000)
    assert proof["sinks"]["large"] == {"expected": 202, "found": 173, "lost": 29, "duplicates": 0}
    assert proof["sinks"]["bars"]["lost"] == 0


def lose_a_file(demo: Path) -> None:
    (demo / "bars/epoch=000004/part-00000.parquet").unlink()


def lose_an_epoch(demo: Path) -> None:
    shutil.rmtree(demo / "large/epoch=000001")


def lose_a_sink(demo: Path) -> None:
    shutil.rmtree(demo / "bars")


def copy_a_file_beside_itself(demo: Path) -> None:
    file = demo / "large/epoch=000003/part-00000.parquet"
    shutil.copy(file, file.with_name("part-00001.parquet"))


def copy_an_epoch(demo: Path) -> None:
    shutil.copytree(demo / "bars/epoch=000003", demo / "bars/epoch=000099")


def change_a_row(demo: Path) -> None:
    file = demo / "large/epoch=000005/part-00000.parquet"
    rows = [tuple(row.values()) for row in pq.read_table(file).to_pylist()]
    number, time, symbol, price, qty = rows[3]
    rows[3] = (number, time, symbol, price + 0.01, qty)
    write_rows(file.parent, Trade._fields, rows)


def lose_a_key(demo: Path) -> None:
    change_view(demo, {"OAKS": None})


def lose_the_view(demo: Path) -> None:
    shutil.rmtree(demo / "latest")


def leave_a_key_behind(demo: Path) -> None:
    change_view(demo, {"ALDR": by_symbol(latest_trades(6000))["ALDR"]})


def add_a_stranger(demo: Path) -> None:
    change_view(demo, {"YEWS": trade(6999)._replace(symbol="YEWS")})


@pytest.mark.parametrize(
    ("attack", "sink", "lost", "duplicates"),
    [
        (lose_a_file, "bars", 10, 0),
        (lose_an_epoch, "large", 29, 0),
        (lose_a_sink, "bars", 40, 0),
        (copy_a_file_beside_itself, "large", 0, 29),
        (copy_an_epoch, "bars", 0, 10),
        (change_a_row, "large", 1, 1),
        (lose_a_key, "latest", 1, 0),
        (lose_the_view, "latest", 10, 0),
        (leave_a_key_behind, "latest", 1, 1),
        (add_a_stranger, "latest", 0, 1),
    ],
)
def test_what_is_lost_doubled_or_changed_is_found(
    attack: Callable[[Path], None],
    sink: str,
    lost: int,
    duplicates: int,
    demo: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    attack(demo)
    for each in prove(demo).sinks:
        wrong = (lost, duplicates) if each.sink == sink else (0, 0)
        assert (each.lost.total(), each.surplus.total()) == wrong
    assert verify(demo) == 1
    shown = capsys.readouterr().out
    assert "Exactly once: no." in shown
    row = "Bar" if sink == "bars" else "Trade"
    assert f"  {sink}: {'lost' if lost else 'too many'}: {row}(" in shown


def test_an_epoch_that_the_sinks_show_and_spark_has_not_committed_is_too_many(demo: Path) -> None:
    (demo / CHECKPOINTS / "working/g2/commits/6").unlink()
    bars, large, latest = prove(demo).sinks
    assert not bars.lost
    assert not large.lost
    assert (bars.surplus.total(), large.surplus.total()) == (10, 29)
    assert (latest.lost.total(), latest.surplus.total()) == (10, 10)


def test_an_epoch_that_spark_has_committed_and_no_sink_shows_is_lost(demo: Path) -> None:
    write_offsets(demo, BATCHES)
    write_commit(demo, BATCHES)
    assert [sink.lost.total() for sink in prove(demo).sinks] == [10, 29, 10]


def test_a_batch_that_is_only_planned_does_not_count(demo: Path) -> None:
    write_offsets(demo, BATCHES)
    assert prove(demo).holds


def test_a_bar_that_only_the_next_batch_may_close_is_too_many(demo: Path) -> None:
    later = set(closed_bars(BATCHES * 1000, watermark_of(BATCHES)))
    early = later - set(closed_bars(BATCHES * 1000, watermark_of(BATCHES - 1)))
    assert len(early) == 10
    write_rows(demo / "bars/epoch=000099", Bar._fields, sorted(early))
    assert prove(demo).sinks[0].surplus.total() == 10


def test_the_log_of_the_last_start_counts(demo: Path) -> None:
    for batch in range(2):
        write_offsets(demo, batch, start=1)
        write_commit(demo, batch, start=1)
    (demo / CHECKPOINTS / "working/g10.json").write_text("{}")
    assert prove(demo).progress.batch == BATCHES - 1


def test_sinks_that_have_read_different_trades_are_told(demo: Path) -> None:
    write_offsets(demo, BATCHES - 1, behind=1000)
    with pytest.raises(DamageError, match="different trades"):
        prove(demo)


def test_a_file_that_cannot_be_read_is_told(demo: Path) -> None:
    (demo / "bars/epoch=000004/part-00000.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DamageError, match="bars cannot be read"):
        prove(demo)
    assert verify(demo) == DamageError.exit_code


def test_where_no_demo_was_run_there_is_nothing_to_verify(tmp_path: Path) -> None:
    assert verify(tmp_path) == CheckpointNotFoundError.exit_code


def test_the_rows_of_an_epoch_are_counted_over_its_files(demo: Path) -> None:
    copy_a_file_beside_itself(demo)
    assert rows_of_epoch(demo / "large", 3) == 58
    assert rows_of_epoch(demo / "large", 98) == 0
