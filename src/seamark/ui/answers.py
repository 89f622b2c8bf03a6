"""Answers of a store that several viewers share: one question at a time, and kept for a moment.

Tests: ``tests/ui/test_load.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from seamark.errors import StoreUnavailableError
from seamark.ui.bounds import KEEP_ANSWERS, MOST_ANSWERS, READ_PATIENCE

T = TypeVar("T")


@dataclass
class _Question:
    future: asyncio.Future[Any]
    asked_at: float


class Answers:
    """What was asked of one place lately."""

    def __init__(self, threads: Executor, where: str) -> None:
        self._threads, self._where = threads, where
        self._questions: dict[Hashable, _Question] = {}

    async def get(self, key: Hashable, ask: Callable[[], T]) -> T:
        """What ``ask`` gives in a thread; whoever asks the same meanwhile, or soon, gets the same.

        :class:`StoreUnavailableError` when it takes too long; the answer is kept when it comes.
        """
        loop = asyncio.get_running_loop()
        question = self._questions.get(key)
        if question is None or self._is_old(question, loop.time()):
            self._make_room(loop.time())
            question = _Question(loop.run_in_executor(self._threads, ask), loop.time())
            question.future.add_done_callback(_retrieved)
            self._questions[key] = question
        try:
            async with asyncio.timeout(READ_PATIENCE):
                result: T = await asyncio.shield(question.future)
        except TimeoutError:
            raise StoreUnavailableError(
                f"no answer in {READ_PATIENCE:.0f} s",
                where=self._where,
                hint="That says nothing about what it holds. The page goes on asking: try again.",
            ) from None
        return result

    def _is_old(self, question: _Question, now: float) -> bool:
        return question.future.done() and now - question.asked_at >= KEEP_ANSWERS

    def _make_room(self, now: float) -> None:
        old = [key for key, one in self._questions.items() if self._is_old(one, now)]
        done = [key for key, one in self._questions.items() if one.future.done()]
        too_many = len(self._questions) + 1 - MOST_ANSWERS
        for key in {*old, *done[: max(0, too_many)]}:
            del self._questions[key]
        if len(self._questions) >= MOST_ANSWERS:
            raise StoreUnavailableError(
                f"{len(self._questions)} questions wait for an answer of the store",
                where=self._where,
                hint="It is slow, or too many people ask at once. Try again in a moment.",
            )


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Look at an error that may have nobody left to raise it to."""
    if not future.cancelled():
        future.exception()
