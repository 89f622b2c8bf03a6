"""What one handle has seen of the bytes of shared objects.

An object never changes, so what was read or written once need not be read again to be believed.
One that was seen to be damaged is not believed until somebody has read it whole again.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from seamark.manifest.facts import SharedObject


class VerifiedObjects:
    """The objects that were read or written, and those that were damaged. Safe from all threads."""

    def __init__(self) -> None:
        self._verified: set[SharedObject] = set()
        self._damaged: set[SharedObject] = set()
        self._lock = threading.Lock()

    def __contains__(self, shared: SharedObject) -> bool:
        with self._lock:
            return shared in self._verified

    def damaged_among(self, named: Iterable[SharedObject]) -> list[SharedObject]:
        """Those of them that were seen to be damaged."""
        with self._lock:
            return [shared for shared in named if shared in self._damaged]

    def add(self, shared: SharedObject) -> None:
        """All of its bytes were written or read, and they are right."""
        with self._lock:
            self._verified.add(shared)
            self._damaged.discard(shared)

    def add_damaged(self, shared: SharedObject) -> None:
        """It was read, and it is not right."""
        with self._lock:
            self._verified.discard(shared)
            self._damaged.add(shared)

    def forget(self, names: Collection[str]) -> None:
        """Objects with these names were removed."""
        gone = frozenset(names)
        with self._lock:
            self._verified = {s for s in self._verified if s.name not in gone}
            self._damaged = {s for s in self._damaged if s.name not in gone}

    def clear(self) -> None:
        """Nothing is known any more."""
        with self._lock:
            self._verified, self._damaged = set(), set()
