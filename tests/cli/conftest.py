from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.demos import make_demo


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A demo as a run of seven epochs leaves it."""
    make_demo(tmp_path)
    return tmp_path
