"""The programs in ``examples/`` run, and print what their descriptions say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.spark.java import java_home

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
WITH_SPARK = {
    "two_sinks": [
        "first run: up to epoch 2",
        "second run: from checkpoint 2 to epoch 3",
        "all: monday-0 20, monday-1 150, monday-2 30, tuesday-0 500, tuesday-1 10, "
        "wednesday-0 70, wednesday-1 900",
        "large: monday-1 150, tuesday-0 500, wednesday-1 900",
    ],
    "upgrade": [
        "counts: ann 2, bob 1",
        "strict refuses: the pipeline is not the one that this store's checkpoints were made by",
        "operator  largest/aggregation  begins empty  its output is new",
        "operator  counts/aggregation   carried over",
        "counts: ann 3, bob 2",
        "largest: ann 70, bob 10",
    ],
    "blue_green": [
        "blue: ann 2, bob 1",
        "forked from blue/checkpoints@1 after epoch 1",
        "blue: ann 3, bob 1, cid 1",
        "green: ann 3, cid 1",
        "Common history up to epoch 1.",
        "1 epoch on the same rows: 0 differ",
        "only B has the output large",
    ],
    "live_view": [
        "epoch 1: attic 31.5 °C, cellar 12.0 °C",
        "epoch 2: attic 30.0 °C, cellar 12.0 °C, kitchen 21.5 °C",
    ],
    "rewind_query": [
        "rows after three batches: 3",
        "rows after the rollback: 1",
        "rows after the query ran again: 3",
        "elsewhere is as after batch 2",
        "findings   none",
    ],
}
PROTECTED = ["holds batch 2", "newest that is whole: ", "to: 4", "be: 2"]
WITHOUT_SPARK = {
    "store_without_spark": [
        "checkpoint 2: whole",
        "checkpoint 3: damaged",
        "skipped 3: state.bin checksum mismatch",
        "chosen 2: continue from event 2000",
    ]
}


def printed_by(example: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{example}.py", folder],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_by_a_test_and_listed() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    assert programs == {"protect_query", *WITH_SPARK, *WITHOUT_SPARK}
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"[{program}.py]({program}.py)" in page for program in programs)


@pytest.mark.parametrize("example", WITHOUT_SPARK)
def test_an_example_without_spark_prints_what_it_promises(example: str, tmp_path: Path) -> None:
    shown = printed_by(example, tmp_path)
    assert [line for line in WITHOUT_SPARK[example] if line not in shown] == []


@pytest.fixture
def quiet_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.mark.spark
@pytest.mark.usefixtures("quiet_spark")
@pytest.mark.parametrize("example", WITH_SPARK)
def test_an_example_prints_what_it_promises(example: str, tmp_path: Path) -> None:
    shown = printed_by(example, tmp_path)
    assert [line for line in WITH_SPARK[example] if line not in shown] == []


@pytest.mark.spark
@pytest.mark.usefixtures("quiet_spark")
def test_a_query_is_protected_and_the_readme_shows_what_inspect_says_of_it(tmp_path: Path) -> None:
    shown = printed_by("protect_query", tmp_path)
    assert [line for line in PROTECTED if line not in shown] == []
    directory = tmp_path / "words" / "checkpoint"
    (directory / "state/0/1/3.delta").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "seamark", "spark", "inspect", directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"^\$ seamark spark inspect [^\n]*\n(.*?)^```$", readme, re.S | re.M)
    said = done.stdout.replace(str(tmp_path), "/data")
    assert alike(block) == alike(said)


def alike(inspected: str) -> str:
    """What inspect printed, without what differs between two runs: the id, sizes, line ends."""
    same_id = re.sub(r"query [0-9a-f-]{36}", "query ID", " ".join(inspected.split()))
    same_spark = re.sub(r"Spark 4\.\d( or newer)?", "Spark 4", same_id)
    return re.sub(r"\d+ (B|KiB)", "SIZE", same_spark)
