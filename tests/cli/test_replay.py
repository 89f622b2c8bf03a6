"""``seamark replay``: what an epoch writes now beside what it wrote, on the screen and as JSON."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support.running import Cli
from tests.pipeline.support.trees import tree_of
from tests.test_docs import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm

FILES = (
    [{"customer": "ann", "amount": 70}, {"customer": "bea", "amount": 300}],
    [{"customer": "cay", "amount": 150}, {"customer": "ann", "amount": 20}],
    [{"customer": "dan", "amount": 10}],
)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of docs/replay.md, after it has run once for each of three files."""
    root = tmp_path_factory.mktemp("shop")
    for name in ("orders.py", "look_again.py"):
        code = program("docs/replay.md", name).replace("/data/", f"{root}/")
        (root / name).write_text(code, encoding="utf-8")
    changed = (root / "orders.py").read_text().replace("amount >= 100", "amount >= 200")
    (root / "changed.py").write_text(f"{changed}\nprint('loaded')\n", encoding="utf-8")
    (root / "incoming").mkdir()
    for number, rows in enumerate(FILES):
        file = root / "incoming" / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        os.utime(file, (1_700_000_000 + number,) * 2)
        runpy.run_path(str(root / "orders.py"), run_name="__main__")
    return root


@pytest.fixture
def shop(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Its folder, in which commands run."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    capsys.readouterr()
    return made


@pytest.mark.slow
def test_the_programs_of_the_page_run_and_print_what_it_says(
    cli: Cli, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree_of(shop / "checkpoints", shop / "large", shop / "customers")
    sys.path.insert(0, str(shop))
    runpy.run_path("look_again.py")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["OUTPUT", "ROWS", "RECORDED", "RESULT", "WHY"]
    assert [line.split() for line in lines[1:3]] == [
        ["large", "1", "1", "equal"],
        ["customers", "1", "1", "equal"],
    ]
    assert lines[3:] == ["cay 150"]
    assert cli("replay", "checkpoints", "1..3", "--with", "orders.py") == 0
    assert cli.out.splitlines()[0].split() == ["EPOCH", "OUTPUT", "ROWS", "DIGEST", "RESULT"]
    assert cli.out.count(" equal") == 7
    assert "3 equal. Nothing was changed." in cli.out
    assert tree_of(shop / "checkpoints", shop / "large", shop / "customers") == before


@pytest.mark.slow
def test_a_changed_program_is_compared_and_the_exit_code_tells(cli: Cli, shop: Path) -> None:
    assert cli("replay", "checkpoints", "2", "--with", "changed.py:pipeline") == 3
    words = " ".join(cli.out.split())
    assert "the epoch wrote 1 rows" in words
    assert "filters and plain columns are not recorded" in words
    assert "1 differs." in words
    assert "loaded" in cli.err
    document = cli.document("replay", "checkpoints", "1..3", "--with", "changed.py", code=3)
    assert [epoch["result"] for epoch in document["epochs"]] == ["equal", "differs", "equal"]
    large = document["epochs"][1]["outputs"][0]
    assert (large["name"], large["rows"], large["recorded_rows"]) == ("large", 0, 1)
    assert re.fullmatch(r"[0-9a-f]{32}", large["recorded_digest"])
    asked = cli.document(
        "replay", "checkpoints", "2", "--with", "changed.py", "--output", "customers"
    )
    assert [each["name"] for each in asked["epochs"][0]["outputs"]] == ["customers"]


def test_epochs_that_cannot_be_run_are_said(cli: Cli, shop: Path) -> None:
    assert cli("replay", "checkpoints", "9", "--with", "orders.py") == 4
    assert "Epochs that can be: 1 to 3." in cli.err
    assert cli("replay", "checkpoints", "8..9", "--with", "orders.py") == 4
    shutil.copytree("checkpoints", "copy")
    damaged = next(Path("copy").rglob("*0001*/manifest.json"))
    damaged.write_bytes(damaged.read_bytes()[:-3])
    document = cli.document("replay", "copy", "1..3", "--with", "orders.py", code=3)
    found = {epoch["epoch"]: (epoch["result"], epoch["exit_code"]) for epoch in document["epochs"]}
    # epoch 3 began with whole state, which builds on what is damaged
    assert found == {2: ("not run", 0), 3: ("not run", 3)}
    assert cli("replay", "copy", "1..3", "--with", "orders.py") == 3
    assert "with whose state it began, is damaged" in " ".join(cli.out.split())


@pytest.mark.parametrize("epochs", ["x", "3..", "5..2", "-1", "٣"])
def test_what_is_no_epoch_is_a_mistake_in_the_command_line(
    cli: Cli, store: Path, epochs: str
) -> None:
    assert cli("replay", store, "--with", "orders.py", "--", epochs) == 2


@pytest.mark.slow
def test_an_audit_runs_the_epochs_again_too(cli: Cli, shop: Path) -> None:
    assert cli("audit", "checkpoints", "--replay", "orders.py", "--epochs", "2..3") == 0
    words = " ".join(cli.out.split())
    assert "Run again: EPOCH OUTPUT ROWS DIGEST RESULT 2 large 1" in words
    assert "2 equal. Nothing was changed." in words
    document = cli.document("audit", "checkpoints", "--replay", "changed.py", code=3)
    assert [each["result"] for each in document["replayed"]] == ["equal", "differs", "equal"]
    assert not document["damaged"]


def test_a_program_that_starts_its_pipeline_is_refused(cli: Cli, shop: Path) -> None:
    Path("eager.py").write_text(
        Path("orders.py").read_text().replace('if __name__ == "__main__":', "if True:")
    )
    before = tree_of(shop / "checkpoints")
    assert cli("replay", "checkpoints", "1", "--with", "eager.py") == 6
    assert "starts its pipeline when it is loaded" in " ".join(cli.err.split())
    assert tree_of(shop / "checkpoints") == before
