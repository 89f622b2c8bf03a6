"""How many bytes of shared objects are read and hashed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from seamark.blobs.contract import Buffer
from seamark.blobs.streams import hashed_while_read
from seamark.store import shared_objects


class CountedBytes:
    """Counts from the moment on that it is installed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bytes = 0
        self._real = hashed_while_read
        monkeypatch.setattr(shared_objects, "hashed_while_read", self._counted)

    def _counted(self, stream: Any, hasher: Any) -> Iterator[Buffer]:
        for piece in self._real(stream, hasher):
            self._bytes += len(piece)
            yield piece

    def since_last(self) -> int:
        """Bytes since it was asked before."""
        counted, self._bytes = self._bytes, 0
        return counted
