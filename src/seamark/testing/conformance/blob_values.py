"""What a backend promises about one value: whole, exact, or not there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from seamark.blobs.contract import Blobs, Buffer, KeyExists
from seamark.errors import DamageError

KEY = "manifests/manifest-000001.json"
STATE = "checkpoints/state-000001.bin"
PIECE = 1 << 16
LIMIT = 1 << 26


def content(blobs: Blobs, key: str = KEY) -> bytes | None:
    """The value of a key, or None when there is none."""
    blob = blobs.read(key, LIMIT)
    return None if blob is None else blob.data


def streamed(blobs: Blobs, key: str, piece: int = PIECE) -> bytes | None:
    """The value of a key by way of its stream, each piece copied at once."""
    pieces = blobs.stream(key, piece)
    return None if pieces is None else b"".join([bytes(part) for part in pieces])


def pattern(size: int) -> bytes:
    """Bytes whose parts cannot be mistaken for one another."""
    words = (number.to_bytes(4, "big") for number in range(size // 4 + 1))
    return b"".join(words)[:size]


def is_same(data: bytes | None, expected: bytes) -> bool:
    """Compare much data. A failed ``==`` in an assertion would be explained byte by byte."""
    return data == expected


class ProducerFailed(Exception):
    """Stands for whatever a caller's own iterator may raise."""


class BlobValues:
    """Creating, reading, streaming."""

    def test_what_was_created_is_read_back(self, blobs: Blobs) -> None:
        everything = bytes(range(256)) * 5
        blobs.create(KEY, everything)
        assert content(blobs) == everything

    def test_an_empty_value_is_a_value(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"")
        assert content(blobs) == b""
        assert blobs.stat(KEY) is not None

    def test_a_missing_value_is_none_and_not_an_error(self, blobs: Blobs) -> None:
        assert blobs.read(KEY, LIMIT) is None
        assert blobs.stat(KEY) is None

    def test_a_stream_tells_its_version(self, blobs: Blobs) -> None:
        blobs.create("a", b"first")
        stream, entry = blobs.stream("a", 16), blobs.stat("a")
        assert stream is not None
        assert entry is not None
        assert stream.version == entry.version
        list(stream)

    def test_a_range_is_exactly_that_range(self, blobs: Blobs) -> None:
        data = bytes(range(200))
        blobs.create("a", data)
        for offset, length in ((0, 1), (0, 200), (17, 100), (199, 1), (5, 0)):
            assert blobs.read_range("a", offset, length) == data[offset : offset + length]
        assert blobs.read_range("a", 190, 100) == data[190:]

    def test_a_missing_value_has_no_range(self, blobs: Blobs) -> None:
        assert blobs.read_range("a", 0, 10) is None
        assert blobs.read_range("a", 0, 0) is None

    def test_a_missing_value_has_no_stream(self, blobs: Blobs) -> None:
        assert blobs.stream(STATE, PIECE) is None

    def test_a_value_beyond_the_limit_is_damage(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"0123456789")
        with pytest.raises(DamageError):
            blobs.read(KEY, 9)
        assert blobs.read(KEY, 10) is not None

    def test_a_taken_key_is_refused_and_keeps_its_value(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"first")
        with pytest.raises(KeyExists):
            blobs.create(KEY, b"second")
        assert content(blobs) == b"first"

    def test_creating_the_same_bytes_again_is_refused_too(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"same")
        with pytest.raises(KeyExists):
            blobs.create(KEY, b"same")
        assert content(blobs) == b"same"

    def test_stat_tells_size_and_time(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"12345")
        entry = blobs.stat(KEY)
        assert entry is not None
        assert (entry.key, entry.size) == (KEY, 5)
        assert abs(entry.modified - time.time()) < 3600

    def test_a_stream_gives_the_same_bytes_for_every_size(self, blobs: Blobs) -> None:
        for size in (0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7):
            key = f"checkpoints/state-{size + 1:06}.bin"
            blobs.create(key, pattern(size))
            assert is_same(streamed(blobs, key), pattern(size)), f"{size} bytes"

    def test_a_piece_stays_as_it_is_until_the_one_after_the_next(self, blobs: Blobs) -> None:
        blobs.create(STATE, pattern(5 * PIECE + 11))
        stream = blobs.stream(STATE, PIECE)
        assert stream is not None
        earlier: tuple[Buffer, bytes] | None = None
        for piece in stream:
            if earlier is not None:
                assert is_same(bytes(earlier[0]), earlier[1]), "the piece before has changed"
            earlier = (piece, bytes(piece))

    def test_a_created_stream_is_read_back(self, blobs: Blobs) -> None:
        whole = pattern(9 << 20)  # more than one part of a multipart upload
        parts = [whole[: 1 << 20], b"", whole[1 << 20 : (1 << 20) + 3], whole[(1 << 20) + 3 :]]
        blobs.create_stream(STATE, iter(parts))
        assert is_same(content(blobs, STATE), whole)

    def test_a_created_stream_may_be_empty(self, blobs: Blobs) -> None:
        blobs.create_stream(STATE, iter(()))
        assert content(blobs, STATE) == b""

    def test_a_producer_may_use_its_buffer_again(self, blobs: Blobs) -> None:
        def pieces() -> Iterator[Buffer]:
            buffer = bytearray(1000)
            for number in range(4):
                buffer[:] = bytes([number]) * 1000
                yield memoryview(buffer)

        blobs.create_stream(STATE, pieces())
        assert content(blobs, STATE) == b"".join(bytes([number]) * 1000 for number in range(4))

    def test_a_stream_whose_producer_fails_leaves_nothing(self, blobs: Blobs) -> None:
        def pieces() -> Iterator[Buffer]:
            yield b"x" * (9 << 20)
            raise ProducerFailed

        with pytest.raises(ProducerFailed):
            blobs.create_stream(STATE, pieces())
        assert content(blobs, STATE) is None
        assert blobs.entries("checkpoints/") == []

    def test_a_stream_to_a_taken_key_is_refused_where_streams_are_create_only(
        self, blobs: Blobs
    ) -> None:
        if blobs.max_put is not None:
            return  # such a backend cannot tell, and says so
        blobs.create(STATE, b"first")
        with pytest.raises(KeyExists):
            blobs.create_stream(STATE, iter([b"second"]))
        assert content(blobs, STATE) == b"first"
