"""Which folders of epochs there are: found out once for all sinks that write to the same place.

Any number of sinks of a checkpoint may name one folder, each in its own way.

Tests: ``tests/audit/test_epoch_listing.py``.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from seamark.sinks.folders import is_hdfs, local_folder

if TYPE_CHECKING:
    from seamark.audit.verdicts import Shown

T = TypeVar("T")


@dataclass(frozen=True)
class EpochListing:
    """The folders of epochs, as they were at one moment or nearly so."""

    path: str
    folders: Mapping[int, str]
    """By epoch, in their order."""
    versions: Mapping[int, object] = field(default_factory=dict)
    """What tells a folder from another one that had its name before or has it later."""
    merged: Sequence[tuple[int, int]] = ()
    """The first and last epoch of each merged range, in their order."""

    def has_moved(self, now: EpochListing, shown: Shown) -> bool:
        """Whether the folders of some epochs are not those any more that were read."""
        return self._part(shown.first, shown.last) != now._part(shown.first, shown.last)

    def _part(self, first: int, last: int) -> tuple[object, ...]:
        begin, end = bisect_left(self._numbers, first), bisect_right(self._numbers, last)
        merged = bisect_left(self.merged, first, key=lambda limits: limits[1])
        upto = bisect_right(self.merged, last, key=lambda limits: limits[0])
        numbers = self._numbers[begin:end]
        return (
            [(number, self.folders[number], self.versions.get(number)) for number in numbers],
            self.merged[merged:upto],
        )

    @cached_property
    def _numbers(self) -> list[int]:
        return list(self.folders)


class SharedFolder:
    """A folder that some sinks write to, and what was read of it so far."""

    def __init__(self, list_now: Callable[[], EpochListing]) -> None:
        self._list_now = list_now
        self._listing: EpochListing | None = None
        self.is_sure = False
        """Whether two listings have agreed, and nothing was read since."""
        self._readers: dict[object, Any] = {}

    def listing(self) -> EpochListing:
        """What was listed last, for this sink or another one."""
        if self._listing is None:
            self._listing = self._list_now()
        return self._listing

    def listed_again(self) -> EpochListing:
        """What there is now, after all that was read: listed once more, unless that is sure."""
        if not self.is_sure:
            before, self._listing = self._listing, self._list_now()
            self.is_sure = self._listing == before
        return self.listing()

    def reader(self, key: object, wanted: T) -> T:
        """The one that has read the folder in the same way before, or else the ``wanted`` one."""
        kept: T = self._readers.setdefault(key, wanted)
        return kept


class SharedFolders:
    """The folders of all sinks of an audit, each one once, however its path is spelled."""

    def __init__(self) -> None:
        self._folders: dict[object, SharedFolder] = {}

    def at(self, target: str, list_now: Callable[[], EpochListing]) -> SharedFolder:
        """The folder of a sink."""
        return self._folders.setdefault(_place(target), SharedFolder(list_now))


def _place(target: str) -> object:
    if is_hdfs(target):
        return target
    path = local_folder(target)
    try:
        found = os.stat(path)
    except OSError:
        return path
    return found.st_dev, found.st_ino
