"""One removal at a time in a state store, and a mark by which others see that one runs.

A removal takes manifests away and puts back those that are needed after all. Of two at once one
could put back what the other is taking the objects of. So a removal first creates ``_removing``,
and removes it at the end. One that was killed leaves it: it counts for an hour. One that could not
remove it leaves it to the next one of its process. On a full disk, where nothing can be created, a
removal runs without.

Tests: ``tests/state/test_two_removals.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from seamark._common.logs import logger_named
from seamark._common.os_errors import is_disk_full
from seamark._common.retry import retry_unavailable
from seamark.blobs.conditional_writes import (
    Taken,
    create_once,
    ensure_conditional_writes,
    replace_once,
)
from seamark.blobs.contract import Blobs, Tag, TagMismatch
from seamark.errors import DamageError, RefusedError, SeamarkError, StoreUnavailableError
from seamark.state.layout import CheckpointPaths

log = logger_named(__name__)

_LIMIT: Final = 1 << 10
_ABANDONED: Final = 3600.0
"""Seconds after which whoever has left a mark has died."""
_PATIENCE: Final = 1.0
"""Seconds in which a mark is tried to be removed: one that is left costs others an hour."""
_left = set[bytes]()
"""Marks that this process may have left, because the store failed. Its next removal takes them."""


class RemovalMark:
    """The mark of the removal that runs in a state store, if one does."""

    def __init__(self, blobs: Blobs, paths: CheckpointPaths) -> None:
        self._blobs = blobs
        self._key = f"{paths.prefix}_removing"

    def is_set(self) -> bool:
        """Whether a removal runs, as far as can be seen: one may have been killed."""
        entry = self._blobs.stat(self._key)
        return entry is not None and entry.modified > self._blobs.clock() - _ABANDONED

    @contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        """Be the only removal; gives what keeps the mark young, to be called on the way.

        :class:`RefusedError` when another one runs.
        """
        mine = os.urandom(16).hex().encode()
        try:
            self._set(mine)
        except BaseException:
            _left.add(mine)  # it may have arrived
            raise
        renewed = time.monotonic()

        def renew() -> None:
            nonlocal renewed
            if time.monotonic() - renewed >= _ABANDONED / 3:
                self._take(mine, self._tag_of(mine))
                renewed = time.monotonic()

        try:
            yield renew
        finally:
            try:
                retry_unavailable(lambda: self._remove(mine), _PATIENCE, f"removing {self._key}")
            except SeamarkError as error:
                _left.add(mine)
                log.warning("%s was left, and counts for an hour: %s", self._key, error)

    def _set(self, mine: bytes) -> None:
        ensure_conditional_writes(self._blobs)
        try:
            create_once(self._blobs, self._key, mine, _LIMIT)
        except Taken as taken:
            may_take = taken.blob.data in _left or not self.is_set()
            self._take(mine, taken.blob.tag if may_take else None)
        except StoreUnavailableError as error:
            if not is_disk_full(error):
                raise
            log.warning("the disk is full, so %s could not be created: %s", self._key, error.what)

    def _remove(self, mine: bytes) -> None:
        if self._tag_of(mine) is not None:
            self._blobs.delete([self._key])

    def _take(self, mine: bytes, tag: Tag | None) -> None:
        """Replace a version of the mark, unless it is another's by now."""
        try:
            if tag is not None:
                replace_once(self._blobs, self._key, mine, tag, _LIMIT)
                return
        except (Taken, TagMismatch):
            pass
        raise RefusedError(
            "something else is being removed from this state store",
            where=f"{self._blobs.url}: {self._key}",
            hint="Try again when that has ended. The mark of a removal that was killed counts for "
            "an hour.",
        )

    def _tag_of(self, mine: bytes) -> Tag | None:
        """The version of the mark, if it is still this one."""
        try:
            blob = self._blobs.read(self._key, _LIMIT)
        except DamageError:
            return None
        return blob.tag if blob is not None and blob.data == mine else None
