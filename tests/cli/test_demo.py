"""The demo's proof finds every lost, doubled and changed row; the demo itself survives its kill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.cli.app import run
from seamark.cli.demo.folder import CHECKPOINTS, LOG, MARKER, make_room
from seamark.cli.demo.process import PipelineProcess
from seamark.cli.demo.proof import prove, rows_of_epoch
from seamark.cli.demo.trades import (
    BAR_MS,
    DELAY_MS,
    MS_BETWEEN_TRADES,
    OPENING_MS,
    TRADES_PER_EPOCH,
    Bar,
    Trade,
    closed_bars,
    large_trades,
    trade,
)
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError, SeamarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 7


def watermark_of(batch: int) -> int:
    """What the offset log has for a batch: the newest trade before it, less the delay."""
    newest = OPENING_MS + (batch * TRADES_PER_EPOCH - 1) * MS_BETWEEN_TRADES
    return newest - DELAY_MS if batch else 0


def write_offsets(demo: Path, batch: int, *, start: int = 2, behind: int = 0) -> None:
    trades = (batch + 1) * TRADES_PER_EPOCH
    lines = [json.dumps({"offset": read, "timestamp": 0}) for read in (trades, trades - behind)]
    metadata = {"batchWatermarkMs": watermark_of(batch), "batchTimestampMs": 0, "conf": {}}
    file = demo / CHECKPOINTS / f"working/g{start}/offsets/{batch}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", json.dumps(metadata), *lines]))


def write_commit(demo: Path, batch: int, *, start: int = 2) -> None:
    file = demo / CHECKPOINTS / f"working/g{start}/commits/{batch}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'v1\n{{"nextBatchWatermarkMs":{watermark_of(batch + 1)}}}')


def write_rows(folder: Path, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    table = pa.table(
        {name: _column(name, [row[at] for row in rows]) for at, name in enumerate(columns)}
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "part-00000.parquet")
    (folder / "_seamark.json").write_text("{}")


def _column(name: str, values: list[Any]) -> Any:
    if name in ("time", "start", "end"):
        return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    if name == "symbol":
        return pa.array(values, pa.string())
    whole = name in ("number", "qty", "volume", "trades")
    return pa.array(values, pa.int64() if whole else pa.float64())


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A demo as a run of seven epochs leaves it."""
    for batch in range(BATCHES):
        write_offsets(tmp_path, batch)
        write_commit(tmp_path, batch)
        read, before = (batch + 1) * TRADES_PER_EPOCH, batch * TRADES_PER_EPOCH
        bars = set(closed_bars(read, watermark_of(batch)))
        bars -= set(closed_bars(read, watermark_of(batch - 1) if batch else 0))
        epoch = f"epoch={batch + 1:06}"
        write_rows(tmp_path / "bars" / epoch, Bar._fields, sorted(bars))
        large = [each for each in large_trades(read) if each.number >= before]
        write_rows(tmp_path / "large" / epoch, Trade._fields, large)
    return tmp_path


def verify(demo: Path) -> int:
    return run(["demo", "--dir", str(demo), "--verify-only"])


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


@pytest.mark.warm
def test_a_stop_leaves_sparks_own_log_complete(spark: SparkSession, tmp_path: Path) -> None:
    from seamark.cli.demo.pipeline import declare

    run = declare(spark, tmp_path, None).start()
    while run.epoch < 3:
        assert not run.await_termination(0.1)
    run.stop()
    assert (tmp_path / CHECKPOINTS / f"working/g1/commits/{run.epoch - 1}").exists()
    assert prove(tmp_path).holds


# the proof


def test_a_demo_in_which_nothing_is_missing_is_proven(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(demo) == 0
    shown = capsys.readouterr().out
    assert "  bars             40        40      0            0" in shown
    assert "  large           202       202      0            0" in shown
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


@pytest.mark.parametrize(
    ("attack", "sink", "lost", "duplicates"),
    [
        (lose_a_file, "bars", 10, 0),
        (lose_an_epoch, "large", 29, 0),
        (lose_a_sink, "bars", 40, 0),
        (copy_a_file_beside_itself, "large", 0, 29),
        (copy_an_epoch, "bars", 0, 10),
        (change_a_row, "large", 1, 1),
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
    bars, large = prove(demo).sinks
    assert not bars.lost
    assert not large.lost
    assert (bars.surplus.total(), large.surplus.total()) == (10, 29)


def test_an_epoch_that_spark_has_committed_and_no_sink_shows_is_lost(demo: Path) -> None:
    write_offsets(demo, BATCHES)
    write_commit(demo, BATCHES)
    assert [sink.lost.total() for sink in prove(demo).sinks] == [10, 29]


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
    assert "pip install 'seamark[cli,spark]'" in done.stderr
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
@pytest.mark.timeout(400)
def test_the_demo_survives_its_kill_and_its_proof_can_fail(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = seamark("demo", "--dir", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "    8  killed with SIGKILL between save and commit" in done.stdout
    assert "chosen       checkpoint 8 · epoch 8 · verified" in done.stdout
    assert "committed from its committable" in done.stdout
    assert "Exactly once: yes." in done.stdout
    assert "WARN" not in done.stdout + done.stderr

    published = next(folder.glob("large/epoch=000003/part-*.parquet"))
    kept = published.rename(tmp_path / published.name)
    assert seamark("demo", "--dir", str(folder), "--verify-only").returncode == 1
    kept.rename(published)
    assert seamark("demo", "--dir", str(folder), "--verify-only").returncode == 0

    another = folder / "bars/epoch=000777"
    another.mkdir()
    shutil.copy(next(folder.glob("bars/epoch=000004/part-*.parquet")), another)
    doubled = seamark("demo", "--dir", str(folder), "--verify-only", "--json")
    assert doubled.returncode == 1
    copied = rows_of_epoch(folder / "bars", 777)
    assert json.loads(doubled.stdout)["sinks"]["bars"]["duplicates"] == copied > 0
