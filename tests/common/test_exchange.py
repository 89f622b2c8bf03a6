"""Two names are swapped at once, or nothing happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark._common.exchange import exchange


def test_two_folders_swap_their_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of-{name}").write_text("")
    exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [*(tmp_path / "a").iterdir()] == [tmp_path / "a" / "of-b"]
    assert [*(tmp_path / "b").iterdir()] == [tmp_path / "b" / "of-a"]


def test_a_name_that_is_not_there_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [*tmp_path.iterdir()] == [tmp_path / "a"]
