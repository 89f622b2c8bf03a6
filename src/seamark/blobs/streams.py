"""Bytes on their way: hashed while they are written or read, without holding them all.

Tests: ``tests/state/test_pack_places.py``.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from seamark.blobs.contract import Buffer
from seamark.errors import InvalidInputError

PIECE: Final = 4 << 20
_WORTH_A_THREAD: Final = 1 << 20


def pieces_of(chunks: Iterable[Buffer]) -> Iterator[memoryview]:
    """The same bytes in pieces of at most 4 MiB."""
    for chunk in chunks:
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidInputError(f"a state chunk must be bytes, not {type(chunk).__name__}")
        view = memoryview(chunk)
        if not view.c_contiguous:
            raise InvalidInputError("a state chunk must be contiguous in memory")
        view = view.cast("B")
        for start in range(0, len(view), PIECE):
            yield view[start : start + PIECE]


def small_or_stream(pieces: Iterator[Buffer], limit: int) -> bytes | Iterator[Buffer]:
    """All the bytes when they are at most ``limit``, else the pieces again from the beginning."""
    head: list[bytes] = []
    size = 0
    for piece in pieces:
        head.append(bytes(piece))
        size += len(piece)
        if size > limit:
            return itertools.chain(head, pieces)
    return b"".join(head)


class Hashing:
    """Passes pieces on and hashes each one while the consumer works on it."""

    def __init__(self, pieces: Iterable[Buffer], hasher: hashlib._Hash | None = None) -> None:
        self._pieces = pieces
        self._hasher = hasher or hashlib.sha256()
        self.length = 0

    def __iter__(self) -> Iterator[Buffer]:
        with ThreadPoolExecutor(1, "seamark-hash") as pool:
            for piece in self._pieces:
                self.length += len(piece)
                if len(piece) < _WORTH_A_THREAD:
                    self._hasher.update(piece)
                    yield piece
                else:
                    hashed = pool.submit(self._hasher.update, piece)
                    yield piece
                    hashed.result()  # the producer may reuse its buffer from here on

    def hexdigest(self) -> str:
        """SHA-256 of everything that has passed."""
        return self._hasher.hexdigest()


def hashed_while_read(pieces: Iterable[Buffer], hasher: hashlib._Hash) -> Iterator[Buffer]:
    """Pass pieces on; each is hashed while the next one is read.

    For the pieces of a backend only, which stay as they are until the one after the next is asked
    for; a producer that reuses one buffer needs :class:`Hashing`.
    """
    with ThreadPoolExecutor(1, "seamark-hash") as pool:
        running: Future[None] | None = None
        for piece in pieces:
            if running is not None:
                running.result()
            if len(piece) < _WORTH_A_THREAD:
                hasher.update(piece)
                running = None
            else:
                running = pool.submit(hasher.update, piece)
            yield piece
        if running is not None:
            running.result()


def digest_of(pieces: Iterable[Buffer], hasher: hashlib._Hash) -> int:
    """Feed every piece of a backend to the hasher; the number of bytes."""
    return sum(len(piece) for piece in hashed_while_read(pieces, hasher))
