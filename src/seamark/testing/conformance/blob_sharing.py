"""What a backend promises to several threads, handles and processes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

from seamark.blobs.contract import Blobs, KeyExists, Tag, TagMismatch
from seamark.testing.conformance.blob_values import KEY, STATE, content

WRITERS = 8
ROUNDS = 5


def winners(attempt: Callable[[int], Tag]) -> list[int]:
    """Which of eight threads that start together did not lose."""
    start = threading.Barrier(WRITERS)

    def one(number: int) -> int | None:
        start.wait(30)
        try:
            attempt(number)
        except (KeyExists, TagMismatch):
            return None
        return number

    with ThreadPoolExecutor(WRITERS) as pool:
        outcomes = list(pool.map(one, range(WRITERS)))
    return [number for number in outcomes if number is not None]


def seen_during(write: Callable[[], object], look: Callable[[], bytes | None]) -> set[bytes | None]:
    """Every value that a reader saw while ``write`` was under way."""
    values: set[bytes | None] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            values.add(look())

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            write()
        finally:
            done.set()
        watching.result(60)
    return values


def create_as(handles: Sequence[Blobs], key: str, who: int) -> Tag:
    """Create a key with the name of who did it as its value."""
    return handles[who % len(handles)].create(key, b"%d" % who)


def replace_as(handles: Sequence[Blobs], tag: Tag, who: int) -> Tag:
    """Replace a value by the name of who did it."""
    return handles[who % len(handles)].replace(KEY, b"%d" % who, tag)


class BlobSharing:
    """Races, and what others see."""

    def test_one_of_eight_creates_wins(self, blobs: Blobs, second_handle: Blobs) -> None:
        handles = (blobs, second_handle)
        for number in range(ROUNDS):
            key = f"manifests/manifest-{number + 1:06}.json"
            won = winners(partial(create_as, handles, key))
            assert len(won) == 1
            assert content(blobs, key) == b"%d" % won[0], "the value is not the winner's"

    def test_one_of_eight_replaces_wins(self, blobs: Blobs, second_handle: Blobs) -> None:
        handles = (blobs, second_handle)
        tag = blobs.create(KEY, b"start")
        for _ in range(ROUNDS):
            won = winners(partial(replace_as, handles, tag))
            assert len(won) == 1
            assert content(blobs) == b"%d" % won[0], "the value is not the winner's"
            blob = blobs.read(KEY, 100)
            assert blob is not None
            tag = blobs.replace(KEY, b"again", blob.tag)

    def test_a_reader_never_sees_part_of_a_new_value(
        self, blobs: Blobs, second_handle: Blobs
    ) -> None:
        whole = b"0123456789abcdef" * 8192
        for number in range(ROUNDS):
            key = f"manifests/manifest-{number + 1:06}.json"
            seen = seen_during(
                partial(blobs.create, key, whole), partial(content, second_handle, key)
            )
            assert seen <= {None, whole}

    def test_a_reader_never_sees_part_of_a_stream(self, blobs: Blobs, second_handle: Blobs) -> None:
        part = b"0123456789abcdef" * 8192

        def pieces() -> Iterator[bytes]:
            for _ in range(4):
                yield part

        seen = seen_during(
            lambda: blobs.create_stream(STATE, pieces()), lambda: content(second_handle, STATE)
        )
        assert seen <= {None, part * 4}

    def test_a_reader_sees_the_old_value_or_the_new_one(
        self, blobs: Blobs, second_handle: Blobs
    ) -> None:
        values = [bytes([number]) * (100_000 + number) for number in range(ROUNDS + 1)]
        tag = blobs.create(KEY, values[0])
        for old, new in pairwise(values):
            seen = seen_during(
                partial(blobs.replace, KEY, new, tag), partial(content, second_handle)
            )
            assert seen <= {old, new}
            blob = blobs.read(KEY, len(new))
            assert blob is not None
            tag = blob.tag

    def test_two_handles_see_each_others_writes(self, blobs: Blobs, second_handle: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        assert content(second_handle) == b"one"
        blobs.replace(KEY, b"two", tag)
        blob = second_handle.read(KEY, 100)
        assert blob is not None
        assert blob.data == b"two"
        second_handle.replace(KEY, b"three", blob.tag)
        assert content(blobs) == b"three"
        blobs.delete([KEY])
        assert content(second_handle) is None
        assert second_handle.entries("manifests/") == []

    def test_being_exclusive_may_be_nested(self, blobs: Blobs) -> None:
        with blobs.exclusive():
            tag = blobs.create(KEY, b"one")
            with blobs.exclusive():
                blobs.replace(KEY, b"two", tag)
        assert content(blobs) == b"two"

    def test_a_mark_is_seen_as_long_as_it_is_held(self, blobs: Blobs, second_handle: Blobs) -> None:
        with blobs.hold("generation-1"):
            with blobs.hold("generation-2"):
                blobs.forget_holds("generation-2")
                assert second_handle.is_held("generation-2") in (True, None)
            assert second_handle.is_held("generation-2") in (False, None)
        assert second_handle.is_held("never") in (False, None)
