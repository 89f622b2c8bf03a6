"""``seamark audit`` says in a table, in JSON and by its exit code what a sink does not show."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from seamark._common.json_documents import seal, unseal
from seamark.sinks import ConsoleSink, FileSink
from tests.audit.support.pipelines import EPOCHS, ROWS, pipeline, rewrite, ten_epochs, write_input
from tests.cli.support.running import Cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ten")
    ten_epochs(spark, root)
    return root


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def damaged(original: Path, tmp_path: Path) -> Path:
    """The output with a row less in epoch 4 and without epoch 7."""
    shutil.copytree(original / "out", tmp_path / "out")
    path = next((tmp_path / "out" / "epoch=000004").glob("part-*"))
    rewrite(path, lambda rows: rows.__delitem__(0))
    shutil.rmtree(tmp_path / "out" / "epoch=000007")
    return tmp_path / "out"


def test_a_healthy_pipeline_is_one_line_a_sink(cli: Cli, original: Path) -> None:
    assert cli("audit", original / "store") == 0
    assert cli.out.splitlines() == [
        "SINK    KIND   EPOCHS   ROWS  RESULT",
        f"trades  files  1 to {EPOCHS}   {EPOCHS * ROWS}  ok",
        f"1 sinks at epoch {EPOCHS}: 1 as written",
    ]


def test_what_is_wrong_is_named_by_sink_and_epoch(cli: Cli, original: Path, damaged: Path) -> None:
    target = ("--target", f"trades={damaged}")
    assert cli("audit", original / "store", *target) == 3
    lines = cli.out.splitlines()
    assert lines[2].split() == ["trades", "files", "4", "19", "lost"]
    assert lines[3].strip() == "1 row of 20 missing"
    assert lines[5].split() == ["trades", "files", "7", "0", "lost"]
    document = cli.document("audit", original / "store", *target, code=3)
    (sink,) = document["sinks"]
    assert (sink["result"], document["damaged"]) == ("lost", True)
    found = [each for each in sink["epochs"] if each["result"] != "ok"]
    assert [(each["first"], each["expected_rows"], each["found_rows"]) for each in found] == [
        (4, ROWS, ROWS - 1),
        (7, ROWS, 0),
    ]


def test_epochs_and_sinks_can_be_chosen(cli: Cli, original: Path, damaged: Path) -> None:
    target = ("--target", f"trades={damaged}")
    assert cli("audit", original / "store", *target, "--epochs", "1..3") == 0
    assert cli("audit", original / "store", *target, "--epochs", "3..4") == 3
    assert cli("audit", original / "store", "--sink", "trades") == 0
    assert cli("audit", original / "store", "--sink", "bars") == 1
    assert "there is no sink 'bars'" in cli.err
    assert cli("audit", original / "store", "--epochs", "7") == 2


def test_an_edited_checkpoint_is_named(cli: Cli, original: Path, tmp_path: Path) -> None:
    shutil.copytree(original / "store", tmp_path / "store")
    path = tmp_path / "store/checkpoints/checkpoint_000005/manifest.json"
    document = msgspec.json.decode(unseal(path.read_bytes()))
    document["output_digests"]["trades"]["rows"] += 1
    path.write_bytes(seal(msgspec.json.encode(document)))
    assert cli("audit", tmp_path / "store") == 3
    assert "damaged: checkpoint 5: it was changed after it was decided" in cli.out


def test_sinks_that_cannot_be_read_back_are_told(
    spark: SparkSession, cli: Cli, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", 2)
    p = pipeline(spark, tmp_path, FileSink(tmp_path / "out"))
    p.sink("shown", p._outputs["trades"].df.select("n"), ConsoleSink())
    p.run(available_now=True)
    assert cli("audit", tmp_path / "store") == 0
    assert "not compared" in cli.out
    assert "its rows are gone with the process" in cli.out
    assert "2 sinks at epoch 2: 1 as written, 1 not compared" in cli.out


def test_a_store_without_a_checkpoint_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    assert cli("audit", tmp_path / "store") == 4
    assert "there is no checkpoint" in cli.err
