"""Programs of Debian for the tests: installed only where somebody wants that, else told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import browser, prometheus
from tools.programs import Unavailable
from tools.servers import Program


@pytest.fixture(autouse=True)
def nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(browser, "CHROMIUM", Program("Chromium", "chromium", ("no-such-browser",)))
    monkeypatch.setattr(browser, "AXE", tmp_path / "axe.js")


def test_without_consent_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("SERVERS", raising=False)
    monkeypatch.setattr("tools.apt.install", lambda *_: pytest.fail("installed"))
    assert not browser.is_there()
    with pytest.raises(Unavailable, match="Chromium is not installed; SERVERS=install"):
        browser.fetch()


def test_an_installation_that_brings_no_browser_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/x" if name == "apt-get" else None)
    monkeypatch.setattr("tools.debian.PACKAGES_LOCK", tmp_path)
    monkeypatch.setattr("tools.debian.ROOT", tmp_path)
    asked: list[list[str]] = []

    def install(packages: list[str], _: Path) -> bool:
        asked.append(packages)
        return True

    monkeypatch.setattr("tools.apt.install", install)
    with pytest.raises(Unavailable, match="nowhere to be found"):
        browser.fetch()
    assert asked == [["chromium", "fonts-dejavu-core"]]


def test_prometheus_is_installed_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Program("Prometheus", "prometheus", ("no-such-server",))
    monkeypatch.setattr(prometheus, "PROMETHEUS", missing)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("SERVERS", raising=False)
    assert not prometheus.is_there()
    with pytest.raises(Unavailable, match="Prometheus is not installed; SERVERS=install"):
        prometheus.fetch()
    monkeypatch.setenv("SERVERS", "install")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="'apt-get install prometheus' needs root"):
        prometheus.fetch()
