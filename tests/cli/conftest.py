from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support.demos import make_demo
from tests.cli.support.running import Cli
from tests.cli.support.stores import Commands, fill


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A demo as a run of seven epochs leaves it."""
    make_demo(tmp_path)
    return tmp_path


@pytest.fixture
def seamark(capsys: pytest.CaptureFixture[str]) -> Commands:
    """Runs commands and keeps what they print."""
    return Commands(capsys)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs commands and gives their exit codes."""
    return Cli(capsys)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of four checkpoints; its path is short, as lines are measured."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "store")
    return Path("store")
