"""Keeping a checkpoint of another's store for as long as it is being read, and no longer.

Tests: ``tests/store/test_passing_pins.py``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from seamark._common.logs import logger_named
from seamark.errors import OutcomeUnknownError, StoreUnavailableError
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.owner import Owner, live_pins

log = logger_named(__name__)

LIFETIME: Final = 3600.0
"""Seconds after which the pin of a reader that has died no longer counts."""


@contextmanager
def pinned_while_read(
    store: CheckpointStore, checkpoint_id: int, purpose: str, lifetime: float = LIFETIME
) -> Iterator[Callable[[], None]]:
    """Pin a checkpoint until the block ends; gives what renews the pin, to be called on the way.

    The pin expires by itself when the reader dies. A store that cannot be written to is read
    without one, and the log says so: then a prune may take the checkpoint in between.
    :class:`CheckpointNotFoundError` when it is gone.
    """
    name = f"{purpose}-{uuid.uuid4().hex[:12]}"
    try:
        store.pin(name, checkpoint_id, expires_in=lifetime)
    except OutcomeUnknownError:
        raise
    except StoreUnavailableError as error:
        log.warning("checkpoint %d is read without a pin: %s", checkpoint_id, error)
        yield lambda: None
        return
    renewed, lock = time.monotonic(), threading.Lock()

    def renew() -> None:
        nonlocal renewed
        with lock:
            if time.monotonic() - renewed < lifetime / 3:
                return
            renewed = time.monotonic()
        with suppress(StoreUnavailableError):  # there is time for another try
            store.pin(name, checkpoint_id, expires_in=lifetime)

    try:
        yield renew
    finally:
        _unpin(store, name, purpose)


def _unpin(store: CheckpointStore, name: str, purpose: str) -> None:
    """Remove the pin, and what is left of readers that died."""

    def without(owner: Owner) -> Owner:
        live = live_pins(owner)
        kept = {
            key: pin
            for key, pin in owner.pins.items()
            if key != name and (key in live or not key.startswith(f"{purpose}-"))
        }
        return msgspec.structs.replace(owner, pins=kept)

    try:
        store._parts.ownership.amend(without)
    except StoreUnavailableError as error:
        log.warning("the pin %s is left, and expires by itself: %s", name, error)
