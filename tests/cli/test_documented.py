"""Every command is in the documentation, with examples that run as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.cli.app import COMMANDS, run
from seamark.cli.spark import COMMANDS as SPARK_COMMANDS
from seamark.native.inspect.findings import Code
from seamark.progress import open_progress, rocksdb_url
from seamark.spark.session import spark_version
from seamark.store import open_store
from tests.checkpoint_dir.support.directories import make_copy
from tests.cli.support.stores import fill
from tests.native.support.queries import run as run_query
from tests.pipeline.support.forks import filled as fill_forkable
from tests.pipeline.support.workloads import write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
EXAMPLES = [shlex.split(line) for line in re.findall(r"^\$ seamark (.*)$", PAGE, re.M)]
WITH_SPARK = ("state", "repartition")
ELSEWHERE = ("demo", "replay", "ui")
"""Run by tests of their own: they take a minute, need a pipeline, or run until they are ended."""


def needs_spark(words: list[str]) -> bool:
    return words[0] == "spark" and words[1] in WITH_SPARK


def every_command() -> list[str]:
    plain = [name for name in COMMANDS if name != "spark"]
    return [*plain, *(f"spark {name}" for name in SPARK_COMMANDS)]


@pytest.mark.parametrize("command", every_command())
def test_a_command_is_documented_with_an_example(command: str) -> None:
    assert re.search(rf"^### `seamark {command}\b", PAGE, re.M), f"docs/cli.md lacks {command}"
    words = command.split()
    assert any(example[: len(words)] == words for example in EXAMPLES), f"no example: {command}"


def test_the_examples_run_in_their_order_and_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "checkpoints", 6)
    with open_progress(rocksdb_url(tmp_path / "checkpoints" / "progress")) as progress:
        with progress.session():
            progress.stage_checkpoint("trades", 6, b'{"trades":{"0":600,"1":601,"2":602}}')
        progress.write_config_hash(77)
    make_copy(tmp_path / "job", 7)
    with open_store(tmp_path / "trades") as store:
        fill_forkable(store)
    for words in EXAMPLES:
        if needs_spark(words) or words[0] in ELSEWHERE:
            continue
        here = [word.replace("/data/", f"{tmp_path}/") for word in words]
        code = run(here)
        out, err = capsys.readouterr()
        assert code == 0, (words, err)
        assert heading(out.replace(f"{tmp_path}/", "")) == heading(shown_for(words)), words


def shown_for(words: list[str]) -> str:
    """What the page shows below a command."""
    shown: list[tuple[str, str]] = re.findall(
        r"^\$ seamark ([^\n]*)\n(.*?)(?=^(?:```|\$ ))", PAGE, re.M | re.S
    )
    return next(text for line, text in shown if shlex.split(line) == words)


def heading(text: str) -> str:
    """The first words of an output; what changes from run to run is left out."""
    first = text.splitlines()[0] if text else ""
    return " ".join(re.sub(r"[\d./:-]+", "", first).split()[:3])


@pytest.mark.warm
def test_the_examples_that_need_spark_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_input(tmp_path / "input", 3)
    run_query(spark, "counted-rocksdb", folder, tmp_path / "job", tmp_path / "out")
    for words in filter(needs_spark, EXAMPLES):
        if words[1] == "repartition" and spark_version(spark) < (4, 2):
            continue  # its offline runner is newer
        code = run(words)
        out, err = capsys.readouterr()
        assert code == 0, (words, err)
        assert heading(out.replace(f"{tmp_path}/", "")) == heading(shown_for(words)), words
    shutil.rmtree(tmp_path / "job")


def test_every_finding_of_inspect_is_documented() -> None:
    page = (DOCS / "native.md").read_text(encoding="utf-8")
    missing = [code for code in Code if f"`{code}`" not in page]
    assert missing == []


def test_every_exit_code_of_the_errors_is_documented() -> None:
    from seamark import errors

    codes = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.SeamarkError)
    }
    for code in codes:
        assert f"\n| {code} | " in PAGE
