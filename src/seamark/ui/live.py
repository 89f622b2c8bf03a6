"""Looking at the places for all viewers at once, and telling them what is new.

A place is looked at every few seconds for as long as anybody looks at the page, however many do.

Tests: ``tests/ui/test_live.py``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from seamark.ui import bounds
from seamark.ui.places import Place

_WAITING = 16
_RARELY = 10
"""How much less often a place is looked at that cannot be shown: something must be installed."""


_STEP_EVERY = 0.5
"""Seconds between two looks at the step of an epoch that runs in this process."""


class _News(NamedTuple):
    """A place that has changed, or only the step that its running epoch is at."""

    slug: str
    """Empty when there will be no more."""
    running: str = ""


class Live:
    """The looks at all places, and the viewers that wait for news."""

    def __init__(
        self,
        places: Sequence[Place],
        every: float = bounds.LOOK_EVERY,
        word_of: Callable[[Place], str] = lambda _: "",
    ) -> None:
        """``word_of`` says how a place is; that it is quiet is news of its own."""
        self.places = {place.slug: place for place in places}
        self._every, self._word_of = every, word_of
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: dict[asyncio.Queue[_News], frozenset[str]] = {}
        self._wanted = {slug: asyncio.Event() for slug in self.places}
        self._wanted_at = dict.fromkeys(self.places, float("-inf"))
        self._looked = {slug: asyncio.Event() for slug in self.places}
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Look at all places once, and begin to look at what is wanted."""
        self._loop = asyncio.get_running_loop()
        for slug in self.places:  # so that the first page is not shown without them
            self._wanted_at[slug] = self._loop.time()
            self._wanted[slug].set()
        self._tasks = [asyncio.create_task(self._follow(place)) for place in self.places.values()]
        self._tasks += [
            asyncio.create_task(self._follow_running(place))
            for place in self.places.values()
            if place.running is not None
        ]

    async def close(self) -> None:
        """End all looks and all streams."""
        self.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def end(self) -> None:
        """Have all streams end, so that nothing keeps the server from ending."""
        self._is_closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for listener in self._listeners:
            _put(listener, _News("", ""))

    async def want_all(self, patience: float) -> None:
        """All places, as :meth:`want` has it."""
        await asyncio.gather(*(self.want(slug, patience) for slug in self.places))

    async def want(self, slug: str, patience: float) -> Place:
        """A place that somebody looks at; one that was left alone is looked at first.

        After ``patience`` it is given as it is known so far: a page is never held up for longer.
        """
        now = asyncio.get_running_loop().time()
        was_left_alone = not self._wanted[slug].is_set()
        self._wanted_at[slug] = now
        self._wanted[slug].set()
        if was_left_alone:
            self._looked[slug].clear()
        if not self._looked[slug].is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._looked[slug].wait()
        return self.places[slug]

    async def _follow(self, place: Place) -> None:
        loop = asyncio.get_running_loop()
        wanted = self._wanted[place.slug]
        told, word = place.revision, ""
        while not self._is_closed:
            await wanted.wait()
            await place.look()
            if (now := self._word_of(place)) != word:
                place.revision += bool(word)
                word = now
            if place.revision != told:  # also when somebody else has looked in between
                told = place.revision
                self._tell(place.slug)
            self._looked[place.slug].set()
            await asyncio.sleep(self._every * (_RARELY if place.is_unusable else 1))
            if self._is_listened_to(place.slug):
                self._wanted_at[place.slug] = loop.time()
            if loop.time() - self._wanted_at[place.slug] > bounds.UNWATCHED_AFTER:
                wanted.clear()

    async def _follow_running(self, place: Place) -> None:
        """Tell which step the running epoch is at; that costs no look at the store."""
        assert place.running is not None
        told = place.running()
        while not self._is_closed:
            await asyncio.sleep(_STEP_EVERY)
            if (now := place.running()) != told:
                told = now
                self._tell(place.slug, json.dumps({"place": place.slug, **now}))

    def _is_listened_to(self, slug: str) -> bool:
        return any(slug in slugs for slugs in self._listeners.values())

    def _tell(self, slug: str, running: str = "") -> None:
        for listener, slugs in self._listeners.items():
            if slug in slugs:
                _put(listener, _News(slug, running))

    @property
    def has_room(self) -> bool:
        """Whether another viewer may listen."""
        return len(self._listeners) < bounds.MOST_LISTENERS

    async def events(self, slugs: frozenset[str]) -> AsyncIterator[bytes]:
        """News of some places as server-sent events, with a heartbeat, for a bounded time."""
        loop = asyncio.get_running_loop()
        listener: asyncio.Queue[_News] = asyncio.Queue(_WAITING)
        self._listeners[listener] = slugs
        end = loop.time() + bounds.STREAM_SECONDS
        try:
            for slug in slugs:
                self._wanted_at[slug] = loop.time()
                self._wanted[slug].set()
            yield b"retry: 2000\n: hello\n\n"
            while loop.time() < end and not self._is_closed:
                try:
                    async with asyncio.timeout(bounds.HEARTBEAT):
                        news = await listener.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if not news.slug:
                    return
                if news.running:
                    yield f"event: running\ndata: {news.running}\n\n".encode()
                    continue
                revision = self.places[news.slug].revision
                yield f"event: changed\nid: {revision}\ndata: {news.slug}\n\n".encode()
        finally:
            del self._listeners[listener]


def _put(listener: asyncio.Queue[_News], news: _News) -> None:
    """Tell one viewer; one that does not keep up has older news dropped."""
    while listener.full():
        listener.get_nowait()
    listener.put_nowait(news)
