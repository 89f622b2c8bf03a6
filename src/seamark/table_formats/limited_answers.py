"""One process that is asked about all tables that only a store names.

Nobody knows where a store comes from, nor the tables that it names. A file of some hundred
kilobytes can unpack to gigabytes in more ways than can be told beforehand, so the operating system
sets the limits. They hold for all tables of a store together.

Tests: ``tests/audit/test_limited_targets.py``, ``tests/cli/test_limited_look.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from seamark import limits
from seamark._common.limited_process import Answer, ask_process
from seamark._redaction import redacted
from seamark.errors import RefusedError, SeamarkError

T = TypeVar("T")


def read_questions(kind: type[T]) -> tuple[float, list[T]]:
    """What this process is asked, and for how many seconds by the clock it may think.

    It limits itself to that, or to more for files that it has seen to be large.
    """
    patience, questions = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[float, list[Any]])
    return patience, msgspec.convert(questions, list[kind])  # type: ignore[valid-type]


class LimitedAnswers:
    """The answers of a module to some questions, asked together when the first one is wanted.

    The module gets them by :func:`read_questions` and prints a line for each.
    """

    def __init__(self, module: str, questions: Mapping[Hashable, msgspec.Struct]) -> None:
        self._module = module
        self._questions = questions

    def get(self, key: Hashable) -> bytes | None:
        """The line about one of them; None when the process was ended before that."""
        return self._lines.get(key)

    def why_none(
        self, table: str, place: str, advice: str, unavailable: type[SeamarkError]
    ) -> SeamarkError:
        """The error for a question without an answer."""
        where = redacted(place)
        if self._answer.is_late:
            return unavailable(
                f"{table} has not answered: the tables that the store names may take "
                f"{limits.TABLE_PATIENCE} s together",
                where=where,
                hint=advice,
            )
        return RefusedError(
            f"{table} cannot be read with {limits.TABLE_MEMORY // limits.MIB} MiB of memory and "
            f"{limits.TABLE_SECONDS} s of processor time",
            where=": ".join(filter(None, (where, redacted(self._answer.last_words)))),
            hint=f"These are the limits of all tables that a store names. {advice}",
        )

    @cached_property
    def _answer(self) -> Answer:
        question = msgspec.json.encode((limits.TABLE_PATIENCE, [*self._questions.values()]))
        return ask_process(self._module, question)

    @cached_property
    def _lines(self) -> dict[Hashable, bytes]:
        if not self._questions:
            return {}
        return dict(zip(self._questions, self._answer.lines, strict=False))
