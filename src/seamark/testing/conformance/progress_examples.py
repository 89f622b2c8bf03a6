"""What the chapters about progress stores share: names that hurt, and looking at everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import pytest

from seamark.progress import SourceCheckpoint, SourceCheckpointStore

LAST: Final = 2**64 - 1
HOSTILE_NAMES: Final = [
    "a",
    "ab",
    "a:b",
    "a:",
    "sequence:a",
    "source_position:a",
    "config_hash",
    "{a}",
    "}{",
    "a\nb",
    "a\r\nb",
    " a",
    "a ",
    "*",
    "../a",
    "ä",
    "💧" * 20,
]
HOSTILE_KEYS: Final = [
    b"",
    b"\x00",
    b"a",
    b"a\x00",
    b"a\x00b",
    b"a\r\nb",
    b"{a}",
    b"\x7f",
    b"\x80\xff",
    b"\xff" * 8,
    bytes(range(256)),
]

Everything = tuple[dict[str, SourceCheckpoint], int | None, dict[str, dict[bytes, bytes]]]

ONE: Everything = ({"s": SourceCheckpoint(1, b"one")}, None, {"data": {b"key": b"one"}})
NOTHING: Everything = ({}, None, {"data": {}})


class OpenStore(Protocol):
    """Opens the store as another process would: to write, which takes it over, or to read."""

    def __call__(self, *, read_only: bool = False) -> SourceCheckpointStore: ...


def all_of(store: SourceCheckpointStore, *spaces: str) -> Everything:
    """All that is committed: checkpoints, hash, and the data of these spaces."""
    data = {space: dict(store.items(space)) for space in spaces}
    return store.read_all_checkpoints(), store.read_config_hash(), data


def commit(
    store: SourceCheckpointStore, source: str, sequence: int, position: bytes | None = None
) -> None:
    """One session with one checkpoint."""
    with store.session() as s:
        s.stage_checkpoint(source, sequence, position)


def put(store: SourceCheckpointStore, space: str, **values: str) -> None:
    """One session with some values."""
    with store.session() as s:
        for key, value in values.items():
            s.put(space, key.encode(), value.encode())


def all_raise(error: type[Exception], message: str, *actions: Callable[[], object]) -> None:
    """Each of the actions raises this error, with these words."""
    for action in actions:
        with pytest.raises(error, match=message):
            action()


def stage_one(store: SourceCheckpointStore) -> None:
    """Begin a session, or a level of one, and stage a checkpoint and a value."""
    session = store.begin()
    session.put("data", b"key", b"one")
    store.stage_checkpoint("s", 1, b"one")
