"""Which files versions of a Delta table add and remove, one version or several together.

Tests: ``tests/sinks/test_delta_log.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class FileChange:
    """The files that a table has afterwards and had not before, and the other way round."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()

    @property
    def undone(self) -> FileChange:
        """What brings back the files of before."""
        return FileChange(self.removed, self.added)


NO_FILES: Final = FileChange()


class UnnamedVersion:
    """The version that a RESTORE by date went back to, looked for from the newest one down.

    Such an entry does not say which version it was. Its files tell: the newest version that has
    all files of the restored one, and no others, has the same rows. A step down costs as much as
    the files of that version, however many have changed since.

    >>> wanted = UnnamedVersion(FileChange(added=frozenset("b")))
    >>> wanted.go_before(FileChange(frozenset("b"), frozenset("a")))
    >>> wanted.is_reached
    False
    >>> wanted.go_before(FileChange(added=frozenset("a")))
    >>> wanted.is_reached
    True
    """

    def __init__(self, wanted: FileChange) -> None:
        """``wanted``: from the version that is looked for to the one before the RESTORE."""
        self._wanted = wanted
        self._added: set[str] = set()
        self._removed: set[str] = set()
        self._differing = set(wanted.added | wanted.removed)

    @property
    def is_reached(self) -> bool:
        """Whether the version that was reached has the files of the one that is looked for."""
        return not self._differing

    def go_before(self, change: FileChange) -> None:
        """Go one version down: what came and went again, or went and came back, is no change."""
        for name in change.added | change.removed:
            came, went = name in change.added, name in change.removed
            was_added, was_removed = name in self._added, name in self._removed
            is_added = (came and not was_removed) or (was_added and not went)
            is_removed = (went and not was_added) or (was_removed and not came)
            _put(self._added, name, is_added)
            _put(self._removed, name, is_removed)
            is_wanted = (name in self._wanted.added, name in self._wanted.removed)
            _put(self._differing, name, (is_added, is_removed) != is_wanted)


def _put(names: set[str], name: str, is_in: bool) -> None:
    (names.add if is_in else names.discard)(name)
