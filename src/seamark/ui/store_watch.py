"""One store as the page knows it: looked at now and then, for all viewers together.

A look reads the pointer and ``owner.json``. Manifests are read once and remembered: after that only
their status can change, and only until all sinks have committed. The listing of a store, which
shows what the pointer does not, is repeated once a minute.

Tests: ``tests/ui/test_store_watch.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from seamark.errors import DamageError, SeamarkError
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import (
    glance,
    is_writer_alive,
    require_same_history,
    scan_chosen,
    was_pruned,
)
from seamark.store.owner import UNCOUNTED, Owner, standing
from seamark.ui.bounds import KEPT_POINTS, LIST_EVERY, NEWEST
from seamark.ui.points import Point, point_of


@dataclass(frozen=True)
class StoreState:
    """What is known of a store at one moment; never changed, only replaced."""

    url: str
    owner: Owner = field(default_factory=Owner)
    ids: tuple[int, ...] = ()
    """All checkpoints, ascending."""
    known: frozenset[int] = frozenset()
    writer_alive: bool | None = None
    damage: SeamarkError | None = None
    """What is wrong with the store as a whole, such as an ``owner.json`` that cannot be read."""


T = TypeVar("T")
_NEVER: Final = float("-inf")
_MAY_CHANGE: Final = 3
"""Of so many of the newest the sinks may be about to commit; of older ones that is rare."""


class StoreWatch:
    """A store, and what was read of it. Every method may be called from several threads."""

    def __init__(
        self, open_it: Callable[[], CheckpointStore], url: str, *, is_shared: bool = False
    ) -> None:
        self._open = open_it
        self._is_shared = is_shared
        self._opened: CheckpointStore | None = None
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._untold = False
        """Whether a look that :meth:`settled` has made found news."""
        self._listed_at = _NEVER
        self._pointer: int | None = None
        self._points: dict[int, Point] = {}
        self.state = StoreState(url)

    @property
    def store(self) -> CheckpointStore:
        """The store itself, opened when it is first needed."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    @property
    def points(self) -> dict[int, Point]:
        """What is remembered, by id; a copy, since looks go on meanwhile."""
        with self._lock:
            return dict(self._points)

    def look(self) -> bool:
        """Look once, and tell whether anything is new. I/O errors pass through."""
        url = self.store.url
        with self._looking:
            is_new = until_settled(self._look, url) or self._untold
            self._untold = False
        return is_new

    def settled(self, use: Callable[[StoreState], T]) -> T:
        """What a function makes of the state; of a newer one when it raises :class:`Overtaken`."""
        url = self.store.url

        def used() -> T:
            state = self.state
            try:
                return use(state)
            except Overtaken:
                with self._looking:
                    if self.state is state:  # otherwise somebody has looked meanwhile
                        self._listed_at = _NEVER  # a prune may leave the pointer as it is
                        self._untold |= until_settled(self._look, url)
                raise

        return until_settled(used, url)

    def _look(self) -> bool:
        """:class:`Overtaken` when the newest one is pruned, or all rolled back, while it reads."""
        store = self.store
        try:
            pointer, owner = glance(store)
        except DamageError as error:
            return self._became(StoreState(store.url, damage=error))
        before = self.state
        if not _goes_on(before.owner, owner):
            with self._lock:
                self._points.clear()  # the same ids may be of another history
        alive = is_writer_alive(store, owner)
        is_due = time.monotonic() - self._listed_at >= LIST_EVERY
        listed_at = self._listed_at
        if pointer is None or is_due or owner != before.owner or before.damage is not None:
            ids, listed_at = store.list_ids(), time.monotonic()
        elif pointer == self._pointer:
            ids = list(before.ids)
        elif (came := self._came(store, before.ids, pointer, owner)) is not None:
            ids = [*before.ids, *came]
        else:
            ids, listed_at = store.list_ids(), time.monotonic()
        ids = [i for i in ids if standing(owner, i) not in UNCOUNTED]
        fresh = self._read_newest(ids, owner, _MAY_CHANGE if not is_due else NEWEST)
        if ids and ids[-1] not in self._points and was_pruned(store, ids[-1]):
            raise Overtaken
        if ids != list(before.ids):
            ids = self._with_missed(ids, owner)
        if listed_at != self._listed_at or fresh or ids != list(before.ids):
            require_same_history(store, owner)
        self._pointer, self._listed_at = pointer, listed_at
        state = StoreState(store.url, owner, tuple(ids), frozenset(ids), alive)
        return self._became(state) or fresh

    def _came(
        self, store: CheckpointStore, ids: Sequence[int], pointer: int, owner: Owner
    ) -> list[int] | None:
        """The ids of those that came since; None when these are many or the pointer odd."""
        newest = ids[-1] if ids else 0
        if not 0 < pointer - newest <= NEWEST:
            return None
        wanted = range(newest + 1, pointer + 1)
        came = {one.checkpoint_id: point_of(one) for one in scan_chosen(store, wanted, owner)}
        self._remember(came)
        return [*came]

    def _with_missed(self, ids: Sequence[int], owner: Owner) -> list[int]:
        """The ids with those that newer ones build on, and that are there although not listed.

        A listing takes a while: of two that are saved meanwhile it may have the second alone.
        """
        known = set(ids)
        newest = list(ids[-NEWEST:])
        while newest:
            points = self.points
            parents = {points[i].parent_id for i in newest if i in points} - known
            missed = [i for i in parents if i and standing(owner, i) not in UNCOUNTED]
            newest = list(self._read(missed, owner))
            known.update(newest)
        return sorted(known)

    def _read_newest(self, ids: Sequence[int], owner: Owner, again: int) -> bool:
        """Have the newest ones read, some ``again`` as long as they may change; is any new?"""
        wanted = [i for i in ids[-NEWEST:] if i not in self._points]
        wanted += [i for i in ids[-again:] if i in self._points and not self._points[i].is_settled]
        before = {i: self._points.get(i) for i in wanted}
        found = self._read(wanted, owner)
        return any(before[i] != found.get(i) for i in wanted)

    def read(self, ids: Sequence[int]) -> Mapping[int, Point]:
        """Some checkpoints by id; those that are remembered are not read again."""
        missing = [i for i in ids if i not in self._points]
        self._read(missing, self.state.owner)
        points = self.points
        return {i: points[i] for i in ids if i in points}

    def _read(self, ids: Sequence[int], owner: Owner) -> dict[int, Point]:
        found = {one.checkpoint_id: point_of(one) for one in scan_chosen(self.store, ids, owner)}
        self._remember(found)
        return found

    def _remember(self, found: Mapping[int, Point]) -> None:
        with self._lock:
            self._points.update(found)
            for checkpoint_id in list(self._points)[: max(0, len(self._points) - KEPT_POINTS)]:
                del self._points[checkpoint_id]

    def _became(self, state: StoreState) -> bool:
        with self._lock:
            before, self.state = self.state, state
        return (before.owner, before.ids, before.writer_alive, str(before.damage)) != (
            state.owner,
            state.ids,
            state.writer_alive,
            str(state.damage),
        )

    def close(self) -> None:
        """Give the store back, unless others use what it is kept in."""
        with self._lock:
            if self._opened is not None and not self._is_shared:
                self._opened.close()


def _goes_on(before: Owner, now: Owner) -> bool:
    """Whether a checkpoint that was known is still the one of its id.

    A store may have been removed and begun anew in its place, or put back from a backup.
    """
    return now.timeline == before.timeline and now.generation >= before.generation
