"""Conditional writes whose outcome is known in the end, or said to be unknown.

A create with the same bytes can be repeated without harm: whichever try arrives first wins, and
finding our own bytes there is success. So a time-out is answered by reading back and trying again.

Tests: ``tests/store/test_faults.py``.
"""

from __future__ import annotations

import random
import time
from typing import Final

from seamark.blobs.contract import Blob, Blobs, KeyExists, Tag, TagMismatch
from seamark.errors import OutcomeUnknownError, StoreUnavailableError

_DELAYS: Final = (0.1, 0.5, 2.0)


class Taken(Exception):
    """The key holds something else; ``blob`` is what."""

    def __init__(self, blob: Blob) -> None:
        super().__init__("taken")
        self.blob = blob


def create_once(blobs: Blobs, key: str, data: bytes, limit: int) -> Tag:
    """Create ``key``; success when it is there with the same bytes; :class:`Taken` with others."""
    for delay in (*_DELAYS, None):
        try:
            return blobs.create(key, data)
        except KeyExists:
            there = blobs.read(key, limit)
            if there is not None:
                return _ours_or_taken(blobs, key, there, data)
            # lost to a value that is already gone again, or to one not yet shown: ask again
        except OutcomeUnknownError:
            if not blobs.read_back_proves:
                raise
            if (blob := _read_back(blobs, key, limit)) is not None:
                return _ours_or_taken(blobs, key, blob, data)
        _wait(delay)
    raise OutcomeUnknownError(
        f"creating {key} was tried {len(_DELAYS) + 1} times and its outcome is not known",
        where=blobs.url,
        hint="Nothing was rolled back. Once the store answers again, recovery finds out.",
    )


def replace_once(blobs: Blobs, key: str, data: bytes, tag: Tag, limit: int) -> Tag:
    """Replace version ``tag`` of ``key``; :class:`TagMismatch` when somebody else was first."""
    for delay in (*_DELAYS, None):
        try:
            return blobs.replace(key, data, tag)
        except TagMismatch:
            # an earlier try of ours may be what is there
            there = blobs.read(key, limit)
            if there is not None and there.data == data:
                return _ours_or_taken(blobs, key, there, data)
            raise
        except OutcomeUnknownError:
            if not blobs.read_back_proves:
                raise
            there = _read_back(blobs, key, limit)
            if there is not None and there.data == data:
                return there.tag
        _wait(delay)
    raise OutcomeUnknownError(
        f"replacing {key} was tried {len(_DELAYS) + 1} times and its outcome is not known",
        where=blobs.url,
        hint="Nothing was rolled back. Once the store answers again, recovery finds out.",
    )


def _read_back(blobs: Blobs, key: str, limit: int) -> Blob | None:
    try:
        return blobs.read(key, limit)
    except StoreUnavailableError:
        return None


def _ours_or_taken(blobs: Blobs, key: str, there: Blob, data: bytes) -> Tag:
    if there.data != data:
        raise Taken(there)
    blobs.make_durable(key)  # an earlier try may have failed just before that
    return there.tag


def _wait(delay: float | None) -> None:
    if delay is not None:
        time.sleep(delay * random.uniform(0.5, 1.0))
