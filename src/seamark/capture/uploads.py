"""The objects that one attempt stores, so that an attempt that fails can remove them again.

Tests: ``tests/capture/test_uploads.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from seamark._common.logs import logger_named
from seamark.blobs.contract import Blobs, Buffer
from seamark.errors import SeamarkError
from seamark.manifest.facts import SharedObject
from seamark.store.shared_objects import SharedObjects

log = logger_named("seamark.pipeline")


class Uploads:
    """Stores shared objects and remembers them until somebody refers to them.

    What a killed process has stored is removed by the first prune of the next run, or by a
    clean-up. ``on_settled`` is told how many objects stay, and their bytes; it must not raise.
    """

    def __init__(
        self, shared: SharedObjects, on_settled: Callable[[int, int], None] | None = None
    ) -> None:
        self._shared = shared
        self._on_settled = on_settled
        self._written: list[SharedObject] = []
        self._lock = threading.Lock()

    @property
    def blobs(self) -> Blobs:
        """Where they are stored; other processes may write objects there."""
        return self._shared.blobs

    @property
    def generation(self) -> int:
        """The claim under which objects are written."""
        return self._shared.generation

    def write(self, pieces: Iterable[Buffer]) -> SharedObject:
        """Store an object."""
        written = self._shared.write(pieces)
        with self._lock:
            self._written.append(written)
        return written

    def expect(self, written: Iterable[SharedObject]) -> None:
        """Other processes have stored these objects for this attempt."""
        objects = list(written)
        self._shared.expect(objects)
        with self._lock:
            self._written += objects

    def settle(self) -> None:
        """What was stored so far is referred to, or may be: it stays."""
        with self._lock:
            settled, self._written = self._written, []
        if self._on_settled is not None and settled:
            self._on_settled(len(settled), sum(each.size for each in settled))

    def discard(self) -> None:
        """Remove what was stored: nothing refers to it and nothing will."""
        with self._lock:
            written, self._written = self._written, []
        discard(self._shared, written)


def discard(shared: SharedObjects, objects: Iterable[SharedObject]) -> None:
    """Remove objects that nothing refers to. One that cannot be removed is left to a clean-up."""
    try:
        shared.discard(objects)
    except SeamarkError as error:
        log.info("objects that nothing refers to are left to a clean-up: %s", error)
