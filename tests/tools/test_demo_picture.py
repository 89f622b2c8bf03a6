"""The picture in the README: what the demo printed, and nothing loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.demo_picture import picture

COMMITTED = Path(__file__).resolve().parents[2] / "docs/images/demo.svg"
PRINTED = """\
\x1b[1mepoch  bars\x1b[0m
    5  old
    6  kept
\x1b[31m    8  killed\x1b[0m
Take something away
"""


def words(svg: str) -> str:
    """The text of a picture, with plain spaces."""
    shown = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return " ".join(shown).replace("&#160;", " ")


def test_the_picture_shows_the_end_of_the_output_in_its_colours() -> None:
    drawn = picture(PRINTED)
    assert "epoch" in words(drawn)
    assert "old" not in words(drawn)
    assert "Take" not in words(drawn)
    assert "kept" in words(drawn)
    assert "killed" in words(drawn)
    assert "#f07178" in drawn


@pytest.mark.parametrize("svg", [picture(PRINTED), COMMITTED.read_text()], ids=["drawn", "kept"])
def test_the_picture_loads_nothing_from_elsewhere(svg: str) -> None:
    assert set(re.findall(r"\w+://[^\s\"')]+", svg)) == {"http://www.w3.org/2000/svg"}


def test_the_picture_in_the_readme_ends_with_the_proof() -> None:
    shown = words(COMMITTED.read_text())
    assert "killed with SIGKILL" in shown
    assert "Exactly once:" in shown
