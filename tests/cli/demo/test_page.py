"""The page beside the demo."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from seamark.cli.demo.page import page_beside
from seamark.cli.demo.pipeline import CHECKPOINTS
from seamark.cli.demo.screen import Screen
from tests.cli.support.stores import fill
from tests.ui.support.serving import Client


def test_the_page_shows_the_epochs_of_the_demo_as_they_come(tmp_path: Path) -> None:
    console = Console(record=True, width=80)
    with page_beside(tmp_path, Screen(console)) as url:
        page = Client(url)
        page.until("/api/places", lambda d: d["places"][0]["health"]["word"] == "empty")
        fill(tmp_path / CHECKPOINTS, 3)
        page.until("/api/places", lambda d: (d["places"][0]["newest"] or {}).get("id") == 3)
    assert url in console.export_text()
