"""Bars for long work, on a terminal that a person looks at. They need rich.

Tests: ``tests/pipeline/test_display.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class Advance(Protocol):
    """Moves a bar on."""

    def __call__(self, by: float = 1, *, total: float | None = None) -> None: ...


class Bar(Protocol):
    """Shows how far some work has come, for as long as it lasts."""

    def __call__(
        self, what: str, total: float | None, *, of_bytes: bool = False
    ) -> AbstractContextManager[Advance]: ...


@contextmanager
def progress_bar_on(
    console: Console, what: str, total: float | None, *, of_bytes: bool = False, hidden: bool
) -> Iterator[Advance]:
    """A bar with rate and time left, which is gone in the end."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(None)]
    columns += [DownloadColumn(), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns += [TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(what, total=total)

        def advance(by: float = 1, *, total: float | None = None) -> None:
            if total is not None:
                progress.update(task, total=total)
            progress.advance(task, by)

        yield advance


@contextmanager
def no_bar(what: str, total: float | None, *, of_bytes: bool = False) -> Iterator[Advance]:
    """A :class:`Bar` that nobody sees."""
    del what, total, of_bytes
    yield _advance_nothing


def _advance_nothing(by: float = 1, *, total: float | None = None) -> None:
    del by, total
