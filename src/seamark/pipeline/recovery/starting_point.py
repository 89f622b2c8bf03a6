"""Where a start leaves off: a working copy that is ready, and the history that it continues.

Tests: ``tests/pipeline/test_starts.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from seamark.capture.file_index import FileIndex
from seamark.capture.movers import Contents
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.pipeline.telemetry.checkpoint_metrics import NewestCheckpoint
from seamark.pipeline.telemetry.reports import StartReport
from seamark.reports.checkpoint_files import IndexedFiles

LongWork = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows work on that many bytes; what it gives is called with the bytes that are done."""


def unwatched(_: int) -> None:
    """For work that nobody watches."""


@dataclass
class StartingPoint:
    """A working copy that is ready to start, and the history that it continues."""

    copy: WorkingCopy
    history: EpochHistory
    report: StartReport
    index: FileIndex | None = None
    """Where the files of the newest checkpoint are; None when that is not known."""
    small_state: Contents = field(default_factory=dict)
    """State that the checkpoints of the chain hold themselves."""

    @property
    def checkpoint(self) -> NewestCheckpoint | None:
        """The newest checkpoint, for the metrics; None when there is none."""
        if self.history.newest is None:
            return None
        files = None if self.index is None else IndexedFiles(self.index, (), frozenset())
        return NewestCheckpoint(
            manifest=self.history.newest,
            links=self.history.links,
            files=files,
            is_new_known=False,
        )
