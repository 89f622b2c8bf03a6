"""The demo's formula, folder and process; and all of it, which survives its kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.cli.demo.command import PipelineProcess
from seamark.cli.demo.pipeline import CHECKPOINTS, LOG, MARKER, make_room
from seamark.cli.demo.proof import prove, rows_of_epoch
from seamark.cli.demo.trades import (
    BAR_MS,
    OPENING_MS,
    SYMBOLS,
    closed_bars,
    latest_trades,
    trade,
)
from seamark.errors import RefusedError, SeamarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# the formula


def test_a_minute_has_1200_trades_and_every_closed_bar_its_tenth_of_them() -> None:
    bars = list(closed_bars(3000, OPENING_MS + 2 * BAR_MS))
    assert len(bars) == 20
    assert {bar.trades for bar in bars} == {120}
    assert {bar.start for bar in bars} == {OPENING_MS, OPENING_MS + BAR_MS}


def test_a_bar_is_what_its_trades_give() -> None:
    bar = next(bar for bar in closed_bars(1200, OPENING_MS + BAR_MS) if bar.symbol == "BRCH")
    trades = [trade(number) for number in range(1, 1200, 10)]
    assert (bar.open, bar.close) == (trades[0].price, trades[-1].price)
    assert bar.high == max(each.price for each in trades)
    assert bar.low == min(each.price for each in trades)
    assert bar.volume == sum(each.qty for each in trades)


def test_a_window_is_closed_by_a_watermark_at_its_end_and_not_before() -> None:
    assert list(closed_bars(3000, OPENING_MS + BAR_MS - 1)) == []
    assert len(list(closed_bars(3000, OPENING_MS + BAR_MS))) == 10


def test_the_newest_trade_of_each_symbol_is_found_without_looking_at_the_others() -> None:
    newest = {each.symbol: each for each in map(trade, range(2345))}
    assert set(latest_trades(2345)) == set(newest.values())
    assert len(newest) == len(SYMBOLS)
    assert list(latest_trades(0)) == []


@pytest.mark.slow
@pytest.mark.warm
def test_spark_computes_the_same_trades_and_bars(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    from seamark.cli.demo.pipeline import as_bars, as_trades

    trades = as_trades(spark.range(3600).withColumnRenamed("id", "value"))
    times = ("time", "start", "end")

    def rows(df: Any) -> set[tuple[Any, ...]]:
        plain = [f.unix_millis(name).alias(name) if name in times else name for name in df.columns]
        return {tuple(row) for row in df.select(*plain).collect()}

    assert rows(trades) == {trade(number) for number in range(3600)}
    assert rows(as_bars(trades)) == set(closed_bars(3600, OPENING_MS + 3 * BAR_MS))


@pytest.mark.slow
@pytest.mark.warm
def test_a_stop_leaves_sparks_own_log_complete(spark: SparkSession, tmp_path: Path) -> None:
    from seamark.cli.demo.pipeline import declare

    run = declare(spark, tmp_path, None).start()
    while run.epoch < 3:
        assert not run.await_termination(0.1)
    run.stop()
    assert (tmp_path / CHECKPOINTS / f"working/g1/commits/{run.epoch - 1}").exists()
    assert prove(tmp_path).holds


# the folder and the process


def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RefusedError, match="something else than an earlier demo"):
        make_room(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_checkpoints_that_no_demo_has_made_are_refused(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINTS).mkdir()
    with pytest.raises(RefusedError):
        make_room(tmp_path)
    assert (tmp_path / CHECKPOINTS).exists()


def test_an_earlier_demo_is_removed_unless_something_was_put_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    make_room(folder)
    (folder / CHECKPOINTS).mkdir()
    make_room(folder)
    assert sorted(file.name for file in folder.iterdir()) == [MARKER, "spark"]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RefusedError, match="something else"):
        make_room(folder)


def test_without_spark_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'pyspark' else real(n, *a)\n"
        f"from seamark.cli.app import run; sys.exit(run(['demo', '--dir', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'seamark[cli,spark,rocksdb]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_pipeline_that_fails_is_told_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_room(tmp_path / "demo")
    fake = tmp_path / "pyspark"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise ImportError('this Spark is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        PipelineProcess(tmp_path / "demo") as process,
        pytest.raises(SeamarkError, match="ended with exit code 1") as failure,
    ):
        process.recovery()
    assert "this Spark is broken" in str(failure.value)
    assert str(tmp_path / "demo" / LOG) in str(failure.value)


# all of it


def seamark(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seamark", *args],
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demo_survives_its_kill_and_its_proof_can_fail(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = seamark("demo", "--dir", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "    8  killed with SIGKILL between save and commit" in done.stdout
    assert "chosen       checkpoint 8 · epoch 8 · verified" in done.stdout
    assert "sink latest: committed from its committable" in done.stdout
    assert "as another process reads it: 10 symbols, all of epoch 7\n" in done.stdout
    assert "  view         10 symbols, all of epoch 8\n" in done.stdout
    assert re.search(r"View read [\d ]+ times during the run: \d+ epochs", done.stdout)
    assert "Exactly once: yes." in done.stdout
    assert "WARN" not in done.stdout + done.stderr

    published = next(folder.glob("large/epoch=000003/part-*.parquet"))
    kept = published.rename(tmp_path / published.name)
    assert seamark("demo", "--dir", str(folder), "--verify-only").returncode == 1
    kept.rename(published)
    assert seamark("demo", "--dir", str(folder), "--verify-only").returncode == 0

    view = folder / "latest"
    view.rename(tmp_path / "latest")
    lost = seamark("demo", "--dir", str(folder), "--verify-only", "--json")
    assert json.loads(lost.stdout)["sinks"]["latest"]["lost"] == len(SYMBOLS)
    (tmp_path / "latest").rename(view)

    another = folder / "bars/epoch=000777"
    another.mkdir()
    shutil.copy(next(folder.glob("bars/epoch=000004/part-*.parquet")), another)
    doubled = seamark("demo", "--dir", str(folder), "--verify-only", "--json")
    assert doubled.returncode == 1
    copied = rows_of_epoch(folder / "bars", 777)
    assert json.loads(doubled.stdout)["sinks"]["bars"]["duplicates"] == copied > 0
