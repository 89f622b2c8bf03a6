"""What the tests of partitioned state share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def ids_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids only grow within a process, so that one of tomorrow would push those of later tests."""
    monkeypatch.setattr("seamark.state.layout._last_value", 0)
