"""Chromium driven by Playwright, with all that it complains about written down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    sync_playwright,
)

from tests.support.processes import ServerUnavailable
from tools import browser
from tools.environment import ROOT

SHOTS = Path(os.environ.get("SEAMARK_SCREENSHOTS") or ROOT / ".venv" / "screenshots")
FLAGS = (
    "--no-sandbox",  # it refuses to run as root otherwise
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESK = (390, 844), (1280, 900)
PATIENCE = 60_000
_SERIOUS = ("serious", "critical")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser; ServerUnavailable where there is none."""
    if not browser.is_there():
        raise ServerUnavailable("Chromium or axe-core is missing; 'make integration' fetches them")
    folder = browser.CHROMIUM.find()
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(
                executable_path=f"{folder}/chromium", args=list(FLAGS)
            )
        except Error as error:
            raise ServerUnavailable(f"Chromium does not start: {error.message[:300]}") from None
        yield started
        started.close()


@dataclass
class Visit:
    """One tab, and what went wrong in it."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Open a page and wait until it listens for news."""
        self.page.goto(self.base.rstrip("/") + path)
        self.page.wait_for_selector("#connection.on", timeout=PATIENCE)

    def refuse(self, dialog: Dialog) -> None:
        """Note that the page, or what runs in it, has opened a dialog."""
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def heard(self, said: ConsoleMessage) -> None:
        """Note what the browser complains about."""
        if said.type == "error":
            self.complaints.append(said.text)

    def shoot(self, name: str) -> None:
        """Keep a picture of the whole page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=True)

    def barriers(self) -> list[str]:
        """What axe-core finds that would keep somebody from using the page."""
        self.page.evaluate(browser.AXE.read_text())
        found: dict[str, Any] = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in _SERIOUS
            for node in each["nodes"]
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def visit(
    started: Browser, base: str, *, size: tuple[int, int] = DESK, scheme: Any = "light"
) -> Iterator[Visit]:
    """A tab of its own; what the browser complains about is an error at the end."""
    context = started.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    tab = Visit(page, base)
    page.on("dialog", tab.refuse)
    page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    page.on("console", tab.heard)
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', "
        "(e) => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))"
    )
    try:
        yield tab
    finally:
        context.close()
    assert tab.complaints == []
