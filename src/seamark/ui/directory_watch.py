"""The checkpoint directory of a Spark query as the page knows it.

A look asks for the newest committed batch. The directory is inspected when that has changed, and
once a minute.

Tests: ``tests/ui/test_pages.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from seamark.checkpoint_dir.places.directory import Directory
from seamark.native.inspect.inspection import inspect
from seamark.reports.directory_document import directory_document
from seamark.reports.document import Document
from seamark.ui.bounds import INSPECT_EVERY, LIST_EVERY


class DirectoryWatch:
    """A directory, and what the last inspection found."""

    def __init__(self, open_it: Callable[[], Directory]) -> None:
        self._open = open_it
        self._opened: Directory | None = None
        self._inspected_at = float("-inf")
        self._committed: int | None = None
        self.document: Document | None = None

    def look(self) -> bool:
        """Look once, and tell whether anything is new. I/O errors pass through."""
        if self._opened is None:
            self._opened = self._open()
        committed = self._opened.newest_commit()
        waited = time.monotonic() - self._inspected_at
        due = INSPECT_EVERY if committed != self._committed else LIST_EVERY
        if waited < due:
            return False
        document = directory_document(inspect(self._opened))
        self._committed = committed
        self._inspected_at = time.monotonic()
        before, self.document = self.document, document
        return before != document

    def close(self) -> None:
        """Give the directory back."""
        if self._opened is not None:
            self._opened.close()
