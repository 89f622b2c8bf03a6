"""The page beside the demo, with its epochs as they come.

Tests: ``tests/cli/demo/test_page.py``.
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from seamark.cli.demo.pipeline import CHECKPOINTS
from seamark.cli.demo.screen import Screen
from seamark.cli.ui import require_extra


@contextmanager
def page_beside(folder: Path, screen: Screen) -> Iterator[str]:
    """Serve the page of the demo's store; at the end, wait until the user has seen enough."""
    require_extra()
    from seamark.ui.places import places_at
    from seamark.ui.server import PageServer

    store = folder / CHECKPOINTS
    store.mkdir(parents=True, exist_ok=True)
    with PageServer(places_at([str(store)], {}), port=0) as server:
        screen.line(f"The page is at {server.url}\n")
        is_watched = sys.stdin.isatty() and sys.stdout.isatty()
        if is_watched:
            webbrowser.open(server.url)
        yield server.url
        if is_watched:
            click.pause("\nPress any key to end the page …")
