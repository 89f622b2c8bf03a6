"""Finding out whether a store honours the conditions that everything here relies on.

Tests: ``tests/store/test_faults.py``.
"""

from __future__ import annotations

import uuid
from weakref import WeakSet

from seamark._common.logs import logger_named
from seamark.blobs.contract import Blobs, KeyExists, TagMismatch
from seamark.blobs.leftovers import PROBE_PREFIX
from seamark.errors import RefusedError, SeamarkError

log = logger_named(__name__)


_seen_to_work: WeakSet[Blobs] = WeakSet()


def ensure_conditional_writes(blobs: Blobs) -> None:
    """Before the first write through a backend that may not honour conditions: see that it does."""
    if blobs.needs_probe and blobs not in _seen_to_work:
        probe_conditional_writes(blobs)
        _seen_to_work.add(blobs)


def probe_conditional_writes(blobs: Blobs) -> None:
    """Write, and see the writes that must fail fail; :class:`RefusedError` when one does not."""
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        blobs.create(key, b"1")
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
    blob = blobs.read(key, 16)
    if blob is None or blob.tag in (None, (None, None)):
        return False
    blobs.replace(key, b"3", blob.tag)
    try:
        blobs.replace(key, b"4", blob.tag)
    except TagMismatch:
        return True
    return False
