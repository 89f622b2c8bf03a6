"""Reading stored objects again, slowly, so that rot is found while the state is still elsewhere.

A start that keeps its working copy reads nothing of the store, and a running pipeline only writes
to it. So each object that the newest checkpoint refers to is read once in a while, spread evenly
over that time.

Tests: ``tests/capture/test_scrub.py``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from seamark._common.logs import logger_named
from seamark.capture.background_budget import Budget
from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject
from seamark.store.shared_objects import SharedObjects

log = logger_named("seamark.pipeline")

_SETTLING: Final = 60.0
"""A run has better things to do at its beginning."""

OnDamage = Callable[[bool], None]
"""Called for each damaged object, with whether all of its files could be stored again."""


class Scrub:
    """Chooses what to read, and reads it; each object at most once in ``every`` seconds.

    With None nothing is read.
    """

    def __init__(
        self, shared: SharedObjects, every: float | None, on_damage: OnDamage | None = None
    ) -> None:
        self._shared = shared
        self._every = every
        self._on_damage = on_damage
        self._clock = time.monotonic
        self._read_at: dict[SharedObject, float] = {}
        self._next_at: float | None = None
        self.damaged: set[SharedObject] = set()
        """What was found to be damaged or missing."""

    def due(self, objects: Collection[SharedObject]) -> SharedObject | None:
        """The object to read now; None when it is not time for one."""
        every, now = self._every, self._clock()
        if every is None or not objects:
            return None
        pause = every / len(objects)
        if self._next_at is None:
            # runs that are shorter than the pause read their share too, on average
            self._next_at = now + max(pause * random.random(), min(every, _SETTLING))
        if now < self._next_at:
            return None
        self._read_at = {each: at for each in objects if (at := self._read_at.get(each))}
        waiting = [
            each
            for each in objects
            if each not in self.damaged and now - self._read_at.get(each, -every) >= every
        ]
        if not waiting:
            return None
        self._next_at = now + pause
        return random.choice(waiting)

    def problem(self, shared: SharedObject, budget: Budget) -> str | None:
        """Read an object; what is wrong with it, or None."""
        self._read_at[shared] = self._clock()
        first = self._damage(shared, budget)
        # once more: was it the object, or the way from there to here?
        return first and self._damage(shared, budget)

    def _damage(self, shared: SharedObject, budget: Budget) -> str | None:
        try:
            for _ in budget.spent_on(self._shared.read(shared)):
                if budget.is_lifted:
                    return None
        except DamageError as error:
            return error.what
        return None

    def report(self, shared: SharedObject, problem: str, lost: Collection[str]) -> None:
        """Tell that an object is damaged, and which of its files could not be stored again."""
        self.damaged.add(shared)
        if not lost:
            log.warning(
                "stored state is damaged: %s. It was stored again from the working copy, and the"
                " next checkpoint refers to that.",
                problem,
            )
        else:
            log.warning(
                "stored state is damaged: %s. %s and %d more of its files are not in the working"
                " copy any more. The run goes on, but a restore would fail: 'seamark verify' shows"
                " which checkpoints are concerned, and 'seamark copy' brings the object back from"
                " a copy of the store.",
                problem,
                next(iter(lost)),
                len(lost) - 1,
            )
        if self._on_damage is not None:
            with suppress(Exception):  # whoever listens only watches
                self._on_damage(not lost)
