"""What the tests of partitioned state share."""

from __future__ import annotations

import pytest

from seamark.state import StateStore
from tests.support.counted_blobs import CountedBlobs


@pytest.fixture(autouse=True)
def ids_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids only grow within a process, so that one of tomorrow would push those of later tests."""
    monkeypatch.setattr("seamark.state.layout._last_value", 0)


@pytest.fixture
def blobs() -> CountedBlobs:
    """In memory; counts what is read."""
    return CountedBlobs()


@pytest.fixture
def store(blobs: CountedBlobs) -> StateStore:
    """A store whose chains may be long."""
    return StateStore(blobs, longest_chain=1000)
