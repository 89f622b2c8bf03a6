"""Asking Delta tables that a store names, by a process with limited memory and time.

Nobody knows where a store comes from, nor the tables that it names. A log of some hundred kilobytes
can unpack to gigabytes in more ways than can be told beforehand, so the operating system sets the
limits, as it does for ``restore --table``. They hold for all tables of a store together.

Tests: ``tests/cli/test_limited_look.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from seamark import errors, limits
from seamark._common.limited_process import ask_process, limit_this_process
from seamark.errors import RefusedError, SeamarkError, SourceUnavailableError
from seamark.sources.position_looks import position_in, raised_for
from seamark.sources.sequence_reader import PositionRange


class Question(msgspec.Struct, frozen=True):
    """A Delta table and a line of the offset log."""

    options: dict[str, str]
    line: str

    @property
    def key(self) -> tuple[object, ...]:
        """The same for two sources that stand at the same place of the same table."""
        return (*sorted(self.options.items()), self.line)


class _Asked(msgspec.Struct):
    options: dict[str, str]
    position: Any


class _Answer(msgspec.Struct):
    known: PositionRange | None = None
    error: str = ""
    what: str = ""
    where: str | None = None
    hint: str | None = None


class LimitedLooks:
    """Asks the tables of some sources, all of them at once, when the first answer is wanted."""

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self._questions = questions
        self._is_late, self._last_words = False, ""

    def __call__(self, source: str) -> PositionRange | None:
        """The answer for one source, as ``look_at_line`` gives it, with the same errors.

        :class:`RefusedError` when all of them take more than :mod:`seamark.limits` allows.
        """
        question = self._questions[source]
        position_in(source, question.line)
        answer = self._answers.get(question.key)
        if answer is None:
            raise self._unanswered(source, question)
        with raised_for(source):
            if answer.error:
                kind = getattr(errors, answer.error, SeamarkError)
                raise kind(answer.what, where=answer.where, hint=answer.hint)
        return answer.known

    @cached_property
    def _answers(self) -> dict[tuple[object, ...], _Answer]:
        asked: dict[tuple[object, ...], _Asked] = {}
        for source, question in self._questions.items():
            try:
                position = position_in(source, question.line)
            except SeamarkError:
                continue  # is told when this source is asked about
            asked.setdefault(question.key, _Asked(question.options, position))
        if not asked:
            return {}
        encoded = msgspec.json.encode([*asked.values()])
        answer = ask_process(__name__, encoded, patience=limits.TABLE_PATIENCE)
        self._is_late, self._last_words = answer.is_late, answer.last_words
        told = (msgspec.json.decode(line, type=_Answer) for line in answer.lines)
        return dict(zip(asked, told, strict=False))

    def _unanswered(self, source: str, question: Question) -> SeamarkError:
        place = question.options.get("path", "")
        if self._is_late:
            return SourceUnavailableError(
                f"the table of source {source!r} has not answered: the tables that the store "
                f"names may take {limits.TABLE_PATIENCE} s together",
                where=place,
                hint=_name_it(source),
            )
        allowed = (
            f"{limits.TABLE_MEMORY // limits.MIB} MiB of memory and {limits.TABLE_SECONDS} s of "
            "processor time"
        )
        return RefusedError(
            f"the table of source {source!r} cannot be read with {allowed}",
            where=": ".join(text for text in (place, self._last_words) if text),
            hint=f"These are the limits of all tables that a store names. {_name_it(source)}",
        )


def _name_it(source: str) -> str:
    return (
        "Is it the right one? One that you name is read without limits: "
        f"{source}.path=… in --source-config."
    )


def main() -> None:
    """Answer the questions at standard input, line by line."""
    with suppress(ImportError):  # which a source says better
        import deltalake  # noqa: F401 - before the time is limited

    from seamark.sources import DeltaSource
    from seamark.sources.position_looks import look_at

    limit_this_process(limits.TABLE_MEMORY, limits.TABLE_SECONDS)
    for asked in msgspec.json.decode(sys.stdin.buffer.read(), type=list[_Asked]):
        try:
            answer = _Answer(look_at(DeltaSource, asked.options, asked.position))
        except SeamarkError as error:
            answer = _Answer(None, type(error).__name__, error.what, error.where, error.hint)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
