"""Conditional writes whose outcome is known in the end, or said to be unknown.

A create with the same bytes can be repeated without harm: whichever try arrives first wins, and
finding our own bytes there is success. So a time-out is answered by reading back and trying again.
All of it relies on conditions that the store honours, so that is tried out before the first write.

Tests: ``tests/store/test_faults.py``.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Final
from weakref import WeakSet

from seamark._common.logs import logger_named
from seamark.blobs.contract import PROBE_PREFIX, Blob, Blobs, KeyExists, Tag, TagMismatch
from seamark.errors import OutcomeUnknownError, RefusedError, SeamarkError, StoreUnavailableError

_DELAYS: Final = (0.1, 0.5, 2.0)
_PROBE_LIMIT: Final = 16

log = logger_named(__name__)

_seen_to_work: WeakSet[Blobs] = WeakSet()


class Taken(Exception):
    """The key holds something else; ``blob`` is what."""

    def __init__(self, blob: Blob) -> None:
        super().__init__("taken")
        self.blob = blob


def create_once(blobs: Blobs, key: str, data: bytes, limit: int) -> Tag:
    """Create ``key``; success when it is there with the same bytes; :class:`Taken` with others.

    :class:`OutcomeUnknownError` as soon as one try may have arrived and nothing proves that it did.
    """
    unknown = False
    for delay in (*_DELAYS, None):
        try:
            return blobs.create(key, data)
        except KeyExists:
            # the client repeats requests by itself: an earlier one of ours may be what is there
            there = _read_or_unknown("creating", blobs, key, limit)
            if there is not None:
                return _ours_or_taken(blobs, key, there, data)
            # lost to a value that is already gone again, or to one not yet shown: ask again
        except OutcomeUnknownError:
            if not blobs.read_back_proves:
                raise
            unknown = True
            if (blob := _read_back(blobs, key, limit)) is not None:
                return _ours_or_taken(blobs, key, blob, data)
        except StoreUnavailableError as error:
            if not unknown:
                raise
            raise _unknown("creating", key, blobs) from error
        _wait(delay)
    raise _unknown("creating", key, blobs)


def replace_once(blobs: Blobs, key: str, data: bytes, tag: Tag, limit: int) -> Tag:
    """Replace version ``tag`` of ``key``; :class:`TagMismatch` when somebody else was first.

    :class:`OutcomeUnknownError` as for :func:`create_once`.
    """
    unknown = False
    for delay in (*_DELAYS, None):
        try:
            return blobs.replace(key, data, tag)
        except TagMismatch:
            # an earlier try of ours may be what is there
            there = _read_or_unknown("replacing", blobs, key, limit)
            if there is not None and there.data == data:
                return _ours_or_taken(blobs, key, there, data)
            raise
        except OutcomeUnknownError:
            if not blobs.read_back_proves:
                raise
            unknown = True
            there = _read_back(blobs, key, limit)
            if there is not None and there.data == data:
                return there.tag
        except StoreUnavailableError as error:
            if not unknown:
                raise
            raise _unknown("replacing", key, blobs) from error
        _wait(delay)
    raise _unknown("replacing", key, blobs)


def put_once(blobs: Blobs, key: str, data: bytes, before: Tag | None, limit: int) -> Tag:
    """As :func:`replace_once` of the version ``before``, or as :func:`create_once` without one."""
    if before is None:
        return create_once(blobs, key, data, limit)
    return replace_once(blobs, key, data, before, limit)


def _unknown(doing: str, key: str, blobs: Blobs) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{doing} {key} was tried, and its outcome is not known",
        where=blobs.url,
        hint="Nothing was rolled back. Once the store answers again, recovery finds out.",
    )


def _read_back(blobs: Blobs, key: str, limit: int) -> Blob | None:
    try:
        return blobs.read(key, limit)
    except StoreUnavailableError:
        return None


def _read_or_unknown(doing: str, blobs: Blobs, key: str, limit: int) -> Blob | None:
    try:
        return blobs.read(key, limit)
    except StoreUnavailableError as error:
        raise _unknown(doing, key, blobs) from error


def _ours_or_taken(blobs: Blobs, key: str, there: Blob, data: bytes) -> Tag:
    if there.data != data:
        raise Taken(there)
    blobs.make_durable(key)  # an earlier try may have failed just before that
    return there.tag


def _wait(delay: float | None) -> None:
    if delay is not None:
        time.sleep(delay * random.uniform(0.5, 1.0))


def ensure_conditional_writes(blobs: Blobs) -> None:
    """Before the first write through a backend that may not honour conditions: see that it does."""
    if blobs.needs_probe and blobs not in _seen_to_work:
        probe_conditional_writes(blobs)
        _seen_to_work.add(blobs)


def probe_conditional_writes(blobs: Blobs) -> None:
    """Write, and see the writes that must fail fail; :class:`RefusedError` when one does not."""
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        # a client repeats a request whose answer is lost, and may then be refused its own write
        create_once(blobs, key, b"1", _PROBE_LIMIT)
        if not (_second_create_fails(blobs, key) and _stale_replace_fails(blobs, key)):
            raise RefusedError(
                "this store accepts conditional writes and ignores the condition",
                where=blobs.url,
                hint="Two writers could overwrite each other unseen. Use a store that honours"
                " If-None-Match and If-Match, or open it with"
                " require_conditional_writes=False and make sure that there is one writer.",
            )
    finally:
        try:
            blobs.delete([key])
        except SeamarkError as error:
            log.warning("a probe object was left: %s", error)


def _second_create_fails(blobs: Blobs, key: str) -> bool:
    try:
        blobs.create(key, b"2")
    except KeyExists:
        return True
    return False


def _stale_replace_fails(blobs: Blobs, key: str) -> bool:
    blob = blobs.read(key, _PROBE_LIMIT)
    if blob is None or blob.tag in (None, (None, None)):
        return False
    try:
        replace_once(blobs, key, b"3", blob.tag, _PROBE_LIMIT)
    except TagMismatch:
        raise RefusedError(
            "this store refuses a conditional write although its condition holds",
            where=blobs.url,
            hint="Use a store that honours If-None-Match and If-Match.",
        ) from None
    try:
        blobs.replace(key, b"4", blob.tag)
    except TagMismatch:
        return True
    return False
