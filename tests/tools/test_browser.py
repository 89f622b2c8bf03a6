"""The browser of the tests: installed only where somebody wants that, and told otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import browser
from tools.programs import Unavailable
from tools.servers import Program


@pytest.fixture(autouse=True)
def nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(browser, "CHROMIUM", Program("Chromium", "chromium", ("no-such-browser",)))
    monkeypatch.setattr(browser, "AXE", tmp_path / "axe.js")


def test_without_consent_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("SERVERS", raising=False)
    monkeypatch.setattr("tools.browser.apt.install", lambda *_: pytest.fail("installed"))
    assert not browser.is_there()
    with pytest.raises(Unavailable, match="Chromium is not installed; SERVERS=install"):
        browser.fetch()


def test_an_installation_that_brings_no_browser_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr("tools.browser.os.geteuid", lambda: 0)
    monkeypatch.setattr("tools.browser.shutil.which", lambda _: "/usr/bin/apt-get")
    monkeypatch.setattr(browser, "PACKAGES_LOCK", tmp_path)
    monkeypatch.setattr("tools.browser.apt.install", lambda *_: True)
    with pytest.raises(Unavailable, match="nowhere to be found"):
        browser.fetch()
