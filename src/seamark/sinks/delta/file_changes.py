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

    def after(self, earlier: FileChange) -> FileChange:
        """Both together: what came and went again, or went and came back, is no change.

        >>> one, two = FileChange(frozenset("a")), FileChange(frozenset("b"), frozenset("a"))
        >>> two.after(one) == FileChange(frozenset("b"))
        True
        """
        return FileChange(
            (earlier.added - self.removed) | (self.added - earlier.removed),
            (earlier.removed - self.added) | (self.removed - earlier.added),
        )


NO_FILES: Final = FileChange()


@dataclass(frozen=True)
class UnnamedVersion:
    """The version that a RESTORE by date went back to, looked for from the newest one down.

    Such an entry does not say which version it was. Its files tell: the newest version that has
    all files of the restored one, and no others, has the same rows.
    """

    wanted: FileChange
    """From the version that is looked for to the one before the RESTORE."""
    so_far: FileChange = NO_FILES
    """From the version that was reached to the one before the RESTORE."""

    @property
    def is_reached(self) -> bool:
        """Whether the version that was reached has the files of the one that is looked for."""
        return self.so_far == self.wanted

    def before(self, change: FileChange) -> UnnamedVersion:
        """The same, one version further down."""
        return UnnamedVersion(self.wanted, self.so_far.after(change))
