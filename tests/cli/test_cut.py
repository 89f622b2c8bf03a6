"""``seamark cut``: what to read of each sink, as a table, as JSON, and ready to be typed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seamark import open_store
from seamark.cli.app import run
from seamark.cli.layout import wrapped
from tests.cli.support.running import Cli, epoch

POINTS = {
    "bars": {"kind": "files", "target": "/data/bars", "at": {"epoch": 2, "format": "parquet"}},
    "topic": {
        "kind": "kafka",
        "target": "bars",
        "at": {"bootstrap": "b:9092", "topic": "bars", "end_offsets": {"0": 12, "1": 7}},
    },
}
SINKS = {"bars": ("files", "/data/bars"), "topic": ("kafka", "bars"), "mail": ("function", "")}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as opened:
        opened.claim(pipeline="orders")
        epoch(opened, 1, 1, sinks=SINKS)
        epoch(opened, 2, 2, sinks=SINKS, extra={"read_points": POINTS})
        epoch(opened, 3, 3, sinks=SINKS, pending=("topic",))
    return tmp_path / "store"


def test_the_table_says_what_to_read_of_each_sink(cli: Cli, store: Path) -> None:
    assert cli("cut", store) == 0
    assert "epoch 2, checkpoint 2" in cli.out
    assert "epoch <= 2" in cli.out
    assert "before 0:12, 1:7" in cli.out
    assert "cannot be read" in cli.out


def test_the_document_has_the_read_points_and_the_calls(cli: Cli, store: Path) -> None:
    found = cli.document("cut", store, "--epoch", "2")
    assert (found["epoch"], found["checkpoint"]) == (2, 2)
    bars, topic, mail = found["sinks"]
    assert bars["read_point"] == POINTS["bars"]
    assert bars["readable"]
    assert set(bars["calls"]) == {"spark", "duckdb", "pandas"}
    assert set(topic["calls"]) == {"spark", "pandas"}
    assert (mail["readable"], mail["read_point"], mail["calls"]) == (False, None, {})


@pytest.mark.parametrize(
    ("reader", "call"),
    [
        ("spark", "spark.read.format('parquet').load('file:///data/bars').where('epoch <= 2')"),
        ("pandas", "pandas.read_parquet('/data/bars', filters=[('epoch', '<=', 2)])"),
        (
            "duckdb",
            "SELECT * FROM read_parquet('/data/bars/epoch=*/part-*', "
            "hive_types => {'epoch': BIGINT}) WHERE epoch <= 2",
        ),
    ],
)
def test_a_call_is_on_a_line_of_its_own_and_can_be_copied(
    capsys: pytest.CaptureFixture[str], store: Path, reader: str, call: str
) -> None:
    assert run(["cut", str(store), "--for", reader]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert call in lines
    marked = "--" if reader == "duckdb" else "#"
    others = [line for line in lines if not line.startswith(marked)]
    assert len(others) == (1 if reader == "duckdb" else 2), "all else is a comment"


@pytest.mark.parametrize("name", ["a" * 3_000_000, "a-" * 1_500_000, "é" * 3_000_000])
def test_a_very_long_name_is_printed_in_time_that_grows_with_its_length(name: str) -> None:
    start = time.process_time()
    lines = wrapped(name, 10, cut=True)
    assert "".join(lines) == name
    assert time.process_time() - start < 5


def test_an_epoch_that_cannot_be_read_has_the_exit_code_of_its_error(cli: Cli, store: Path) -> None:
    assert cli("cut", store, "--epoch", "9") == 4
    assert "the newest is 3" in cli.err
    assert cli("cut", store, "--epoch", "3") != 0
    assert "topic" in cli.err


@pytest.mark.parametrize("reader", ["spark", "duckdb", "pandas"])
def test_what_is_printed_to_be_typed_has_one_line_for_each_sink_whatever_the_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, reader: str
) -> None:
    name = "bars\nimport os; os.abort()\x1b[2J"
    at = {"epoch": 1, "format": "parquet"}
    point = {"kind": "files", "target": f"/data/{name}", "at": at}
    with open_store(tmp_path / "store") as opened:
        opened.claim()
        epoch(opened, 1, 1, sinks={name: ("files", "")}, extra={"read_points": {name: point}})
    assert run(["cut", str(tmp_path / "store"), "--for", reader]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    code = [line for line in out.splitlines() if not line.startswith(("#", "--"))]
    assert len(code) == 1


def test_a_sink_that_is_named_many_times_is_printed_once_and_a_very_long_target_not_as_a_whole(
    cli: Cli, tmp_path: Path
) -> None:
    target = f"/data/{'x' * 20_000}"
    with open_store(tmp_path / "store") as opened:
        opened.claim()
        named = epoch(opened, 1, 1, sinks={"bars": ("files" * 2_000, target)})
        opened.save(named.replace(checkpoint_id=2, epoch=2, sink_names=["bars"] * 500))
    assert cli("cut", tmp_path / "store") == 0
    assert "/data/xxx" in cli.out
    assert len(cli.out) < 10_000
    (sink,) = cli.document("cut", tmp_path / "store")["sinks"]
    assert sink["target"] == target
