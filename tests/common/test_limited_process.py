"""A process for files of unknown origin ends: by its memory, its processor time, or the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark._common.limited_process import Answer, ask_process

MODULE = "tests.common.support.questioned"


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root}/src")


def asked(question: str, patience: float = 300) -> Answer:
    return ask_process(MODULE, question.encode(), patience=patience)


def test_what_it_answers_is_told() -> None:
    assert asked("") == Answer(b"begun\ndone\n", "", False)


def test_one_that_computes_without_an_end_is_killed_and_what_it_had_said_is_kept() -> None:
    assert asked("spin") == Answer(b"begun\n", "", False)


def test_one_that_takes_ever_more_memory_runs_out_of_it() -> None:
    assert asked("grow") == Answer(b"begun\n", "MemoryError", False)


def test_one_that_waits_without_an_end_is_killed_by_the_clock() -> None:
    answer = asked("sleep", patience=3)
    assert answer.is_late
    assert answer.last_words == ""


def test_the_last_words_of_one_that_fails_are_told_and_are_short() -> None:
    answer = asked("fail")
    assert answer.last_words.startswith("ValueError: xxx")
    assert len(answer.last_words) == 200


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests.py").write_text("raise SystemExit('a file of unknown origin was run')")
    (tmp_path / "json.py").write_text("raise SystemExit('a file of unknown origin was run')")
    monkeypatch.chdir(tmp_path)
    assert asked("").output.endswith(b"done\n")
