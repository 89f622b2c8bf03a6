"""A store in memory that notes what is read of it."""

from __future__ import annotations

from seamark.blobs.contract import Blob, Stream
from seamark.blobs.memory import MemoryBlobs


class CountedBlobs(MemoryBlobs):
    """Notes the key of everything that is read as a whole or as a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.read_keys: list[str] = []
        self.streamed_keys: list[str] = []

    def read(self, key: str, limit: int) -> Blob | None:
        self.read_keys.append(key)
        return super().read(key, limit)

    def stream(self, key: str, piece: int) -> Stream | None:
        self.streamed_keys.append(key)
        return super().stream(key, piece)

    def forget(self) -> None:
        """Count from here on."""
        self.read_keys.clear()
        self.streamed_keys.clear()

    @property
    def reads(self) -> int:
        """How often a value was read as a whole."""
        return len(self.read_keys)

    @property
    def streams(self) -> int:
        """How often one was read as a stream."""
        return len(self.streamed_keys)
