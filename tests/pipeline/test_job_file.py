"""A program is loaded for the pipeline that it declares, and can do nothing else with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from seamark.errors import InvalidInputError, RefusedError, SeamarkError
from seamark.pipeline.job_file import load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE = """
import seamark
pipeline = seamark.Pipeline("orders", {store!r})
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def a_session() -> SparkSession:
    return cast("SparkSession", "the session")


def job(folder: Path, code: str, name: str = "job.py") -> str:
    path = folder / name
    path.write_text(code.format(store=str(folder / "store")), encoding="utf-8")
    return str(path)


def test_a_pipeline_by_its_usual_name_and_by_another_one(tmp_path: Path) -> None:
    path = job(tmp_path, MADE + "other = seamark.Pipeline('others', {store!r})\n")
    assert load_pipeline(path, a_session).name == "orders"
    assert load_pipeline(f"{path}:other", a_session).name == "others"


def test_a_function_is_called_with_the_session_if_it_takes_one(tmp_path: Path) -> None:
    code = (
        "import seamark\n"
        "def pipeline(spark):\n"
        "    assert spark == 'the session'\n"
        "    return seamark.Pipeline('with', {store!r})\n"
        "def plain():\n"
        "    return seamark.Pipeline('without', {store!r})\n"
    )
    path = job(tmp_path, code)
    assert load_pipeline(path, a_session).name == "with"
    assert load_pipeline(f"{path}:plain", a_session).name == "without"


def test_what_lies_next_to_a_program_can_be_imported(tmp_path: Path) -> None:
    job(tmp_path, "NAME = 'beside'\n", "names_for_this_job.py")
    code = "import names_for_this_job, seamark\n" + (
        "pipeline = seamark.Pipeline(names_for_this_job.NAME, {store!r})\n"
    )
    assert load_pipeline(job(tmp_path, code), a_session).name == "beside"


def test_the_main_part_of_a_program_is_not_run(tmp_path: Path) -> None:
    code = MADE + "if __name__ == '__main__':\n    raise SystemExit('it ran')\n"
    assert load_pipeline(job(tmp_path, code), a_session).name == "orders"


def test_a_program_cannot_start_its_pipeline_while_it_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="starts its pipeline when it is loaded") as refused:
        load_pipeline(job(tmp_path, MADE + "pipeline.run()\n"), a_session)
    assert "__main__" in str(refused.value)
    assert not (tmp_path / "store" / "owner.json").exists()


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("", InvalidInputError, "declares no pipeline: no 'pipeline'"),
        ("pipeline = 7", InvalidInputError, "its 'pipeline' is int"),
        ("1 / 0", SeamarkError, "ZeroDivisionError"),
        ("raise SystemExit(3)", SeamarkError, "SystemExit: 3"),
        ("this is no Python", SeamarkError, "SyntaxError"),
        ("raise ValueError('password=hunter2')", SeamarkError, r"\*\*\*"),
    ],
)
def test_a_program_without_a_pipeline_is_refused_with_the_reason(
    tmp_path: Path, code: str, error: type[SeamarkError], words: str
) -> None:
    with pytest.raises(error, match=words):
        load_pipeline(job(tmp_path, code), a_session)


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no program"):
        load_pipeline(str(tmp_path / "none.py"), a_session)
