"""Asking Delta tables that a store names, by a process with limited memory and time.

Tests: ``tests/cli/test_limited_look.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Final

import msgspec

from seamark import errors, limits
from seamark._common.limited_process import limit_this_process
from seamark._common.text import shortened
from seamark._redaction import redacted
from seamark.errors import DamageError, SeamarkError, SourceUnavailableError
from seamark.sources.position_looks import position_in, raised_for
from seamark.sources.sequence_reader import PositionRange
from seamark.table_formats.limited_answers import LimitedAnswers, read_questions

_LONGEST: Final = 200


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

    def __call__(self, source: str) -> PositionRange | None:
        """The answer for one source, as ``look_at_line`` gives it, with the same errors.

        :class:`RefusedError` when all of them take more than :mod:`seamark.limits` allows.
        """
        question = self._questions[source]
        position_in(source, question.line)
        line = self._answers.get(question.key)
        if line is None:
            advice = (
                "Is it the right one? One that you name is read without limits: "
                f"{source}.path=… in --source-config."
            )
            raise self._answers.why_none(
                f"the table of source {source!r}",
                question.options.get("path", ""),
                advice,
                SourceUnavailableError,
            )
        answer = msgspec.json.decode(line, type=_Answer)
        with raised_for(source):
            if answer.error:
                kind = getattr(errors, answer.error, SeamarkError)
                raise kind(answer.what, where=answer.where, hint=answer.hint)
        return answer.known

    @cached_property
    def _answers(self) -> LimitedAnswers:
        asked: dict[Hashable, msgspec.Struct] = {}
        for source, question in self._questions.items():
            try:
                position = position_in(source, question.line)
            except SeamarkError:
                continue  # is told when this source is asked about
            asked.setdefault(question.key, _Asked(question.options, position))
        return LimitedAnswers(__name__, asked)


@contextmanager
def damage_told(table: str) -> Iterator[None]:
    """:class:`DamageError` for whatever a library says that does not expect such a table."""
    try:
        yield
    except (SeamarkError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        said = redacted(f"{type(error).__name__}: {error}")
        raise DamageError(
            "the table cannot be read", where=f"{redacted(table)}: {shortened(said, _LONGEST)}"
        ) from error


def main() -> None:
    """Answer the questions at standard input, line by line."""
    with suppress(ImportError):  # which a source says better
        import deltalake  # noqa: F401 - before the time is limited

    from seamark.sources import DeltaSource
    from seamark.sources.position_looks import look_at

    patience, questions = read_questions(_Asked)
    limit_this_process(limits.TABLE_MEMORY, limits.TABLE_SECONDS, patience)
    for asked in questions:
        try:
            with damage_told(asked.options.get("path", "")):
                answer = _Answer(look_at(DeltaSource, asked.options, asked.position))
        except SeamarkError as error:
            answer = _Answer(None, type(error).__name__, error.what, error.where, error.hint)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
