"""Folders whose names survive a power cut.

Tests: ``tests/store/test_crash_everywhere.py``.
"""

from __future__ import annotations

import os
from typing import Final

from seamark._common.files import make_folder
from seamark._common.new_names import make_root

_FOLDERS_REMEMBERED: Final = 1000


class DurableFolders:
    """Makes folders below a root, and remembers which of them are durable."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._durable: set[str] = set()

    def make(self, folder: str) -> None:
        """Make a folder, or the root, with all above it, and be sure that its name is durable.

        A folder that is there already may have been made by a process that died before its
        fsync, so each handle makes sure once.
        """
        if folder in self._durable:
            return
        if folder == self._root:
            make_root(folder)
        else:
            self.make(os.path.dirname(folder))
            make_folder(folder, 0o755)
        if len(self._durable) >= _FOLDERS_REMEMBERED:
            self._durable.clear()
        self._durable.add(folder)

    def forget(self, folder: str) -> None:
        """Be unsure of a folder: it is removed, or somebody else may have made it."""
        self._durable.discard(folder)
