"""``seamark spark repartition``: shown first, after a snapshot, or refused with nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.cli.spark import repartition as module
from seamark.native.repartition_rules import OLDEST
from seamark.spark.session import spark_version
from tests.cli.support.running import Cli
from tests.native.support.queries import run
from tests.native.test_repartition import entry, make
from tests.pipeline.support.workloads import write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def make_log(root: Path, *entries: str) -> Path:
    """The log of a file sink; entries with a plus name a file."""
    log = root / "out" / "_spark_metadata"
    log.mkdir(parents=True)
    for each in entries:
        line = '\n{"path":"file:///out/a","size":1,"action":"add"}' if each.endswith("+") else ""
        (log / each.rstrip("+")).write_text(f"v1{line}")
    return log


def test_without_yes_it_is_only_shown(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "ck")
    before = everything(tmp_path)
    assert cli("spark", "repartition", tmp_path / "ck", "5") == 0
    assert "from 2 to 5" in cli.out
    assert "Nothing was changed" in cli.out
    assert "give --file-sink OUT" in cli.out.replace("\n", " ")
    document = cli.document("spark", "repartition", tmp_path / "ck", "5")
    assert (document["new_batch"], document["partitions"], document["done"]) == (1, 5, False)
    assert everything(tmp_path) == before


def test_state_of_another_provider_is_refused_and_nothing_changes(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "ck", provider="com.example.KeptElsewhere")
    before = everything(tmp_path)
    assert cli("spark", "repartition", tmp_path / "ck", "5", "--yes") == 6
    assert "kept by KeptElsewhere" in cli.err.replace("\n  ", " ")
    assert "new checkpoint" in cli.err.replace("\n  ", " ")
    assert everything(tmp_path) == before


def test_an_older_spark_is_refused_before_anything_is_looked_at(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "ck")
    before = everything(tmp_path)
    monkeypatch.setattr(module, "installed_spark", lambda: (4, 1))
    assert cli("spark", "repartition", tmp_path / "ck", "5", "--yes") == 6
    assert "4.2 or newer, and this is 4.1" in cli.err.replace("\n  ", " ")
    assert everything(tmp_path) == before


@pytest.mark.parametrize(("wanted", "code"), [("0", 2), ("x", 2), ("2", 6)])
def test_a_number_that_cannot_be_is_refused(
    cli: Cli, tmp_path: Path, wanted: str, code: int
) -> None:
    make(tmp_path / "ck")
    assert cli("spark", "repartition", tmp_path / "ck", wanted, "--yes") == code


def test_a_missing_directory_is_not_found_and_an_unfinished_batch_refused(
    cli: Cli, tmp_path: Path
) -> None:
    assert cli("spark", "repartition", tmp_path / "nowhere", "5") == 4
    make(tmp_path / "ck").write("offsets/1", entry(2))
    assert cli("spark", "repartition", tmp_path / "ck", "5", "--yes") == 6
    assert "batch 1" in cli.err
    assert not (tmp_path / "ck.seamark").exists()


def test_nothing_is_done_before_it_is_said_whether_there_is_a_file_sink(
    cli: Cli, tmp_path: Path
) -> None:
    make(tmp_path / "ck")
    before = everything(tmp_path)
    args = ("spark", "repartition", tmp_path / "ck", "5")
    told = cli.document(*args, "--yes", code=6)["error"]
    assert "you must say whether the query writes to a file sink" in told["what"]
    assert "--file-sink OUT" in told["hint"]
    assert "--no-file-sink" in told["hint"]
    assert cli.document(*args, "--no-file-sink")["decision"] is None
    for more in (("--file-sink", tmp_path / "out"), ("--compact-interval", "3")):
        assert cli(*args, "--no-file-sink", *more) == 2
    assert everything(tmp_path) == before


def test_the_entry_that_the_log_of_a_file_sink_gets_is_shown(cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "ck")
    log = make_log(tmp_path, "0")
    before = everything(tmp_path)
    args = ("spark", "repartition", tmp_path / "ck", "5", "--file-sink", tmp_path / "out")
    assert cli(*args) == 0
    assert "gets entry 1" in cli.out
    assert "too young to tell how often it is compacted" in cli.out.replace("\n", " ")
    told = cli.document(*args, "--compact-interval", "2")
    assert (told["sink_entry"], told["interval_untold"]) == ("1.compact", False)
    assert everything(tmp_path) == before
    (log / "1").write_text("v1")  # by a run that was interrupted
    assert cli(*args) == 0
    assert "has its entry" in cli.out


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ("", "ends at batch -1"),
        ("0 1 2", "ends at batch 2"),
        ("0 1+", "another entry of batch 1"),
    ],
)
def test_a_log_that_is_not_the_one_of_the_query_is_refused_and_nothing_changes(
    cli: Cli, tmp_path: Path, entries: str, why: str
) -> None:
    make(tmp_path / "ck")
    make_log(tmp_path, *entries.split())
    before = everything(tmp_path)
    args = ("spark", "repartition", tmp_path / "ck", "5", "--file-sink", tmp_path / "out")
    assert why in cli.document(*args, "--yes", code=6)["error"]["what"]
    nowhere = ("spark", "repartition", tmp_path / "ck", "5", "--file-sink", tmp_path)
    assert "no log of a file sink" in cli.document(*nowhere, "--yes", code=6)["error"]["what"]
    assert everything(tmp_path) == before


@pytest.mark.parametrize("link", ["", "/0"])
def test_no_link_in_the_folder_of_a_sink_is_followed(cli: Cli, tmp_path: Path, link: str) -> None:
    make(tmp_path / "ck")
    log = make_log(tmp_path, "0")
    linked, elsewhere = Path(f"{log}{link}"), tmp_path / "elsewhere"
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    before = everything(tmp_path)
    args = ("spark", "repartition", tmp_path / "ck", "5", "--file-sink", tmp_path / "out", "--yes")
    assert "is a link" in cli.document(*args, code=6)["error"]["what"]
    assert everything(tmp_path) == before


@pytest.mark.warm
def test_it_is_done_after_a_snapshot_that_leads_back(
    spark: SparkSession, cli: Cli, tmp_path: Path
) -> None:
    if spark_version(spark) < OLDEST:
        pytest.skip("this Spark has no offline runner")
    folder = write_input(tmp_path / "input", 1)
    run(spark, "counted-rocksdb", folder, tmp_path / "ck", tmp_path / "out")
    logs = {path: (tmp_path / "ck" / path).read_bytes() for path in ("offsets/1", "commits/1")}
    done = cli.document("spark", "repartition", tmp_path / "ck", "3", "--no-file-sink", "--yes")
    assert (done["done"], done["new_batch"], done["state_stores"]) == (True, 2, 3)
    assert (tmp_path / "ck" / "commits" / "2").exists()
    # a second run has nothing to do
    assert cli("spark", "repartition", tmp_path / "ck", "3", "--yes") == 6
    assert "3 state partitions already" in cli.err
    words = done["undo"].replace("NEW_PATH", str(tmp_path / "back")).split()
    assert cli(*words[1:]) == 0
    assert {path: (tmp_path / "back" / path).read_bytes() for path in logs} == logs
    assert not (tmp_path / "back" / "commits" / "2").exists()
