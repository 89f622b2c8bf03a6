"""Whether targets that only a store names can be read with limited memory and time.

A log or a file of rows of some hundred kilobytes can unpack to gigabytes. So a process of its own
reads the same files first, where the operating system sets the limits. They hold for all targets
together.

Tests: ``tests/audit/test_limited_targets.py``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from seamark import limits
from seamark._common.limited_process import limit_this_process
from seamark.audit.tried_rows import TriedRows, left_to_the_audit
from seamark.errors import StoreUnavailableError
from seamark.table_formats.limited_answers import LimitedAnswers, read_questions

_TRIED: Final = "tried"


def option_naming(sink: str) -> str:
    """The option by which a user names the target of a sink, up to its value, to be typed.

    The name of a sink is the store's, and a shell would run what is in it.
    """
    return f"--target {shlex.quote(sink)}="


class TriedTarget(msgspec.Struct, frozen=True):
    """A table or a folder of epochs, and what an audit reads of it."""

    kind: str
    place: str
    options: dict[str, str]
    versions: tuple[int | None, ...] = ()
    """Versions of a table of which all files are read; the newest is None."""
    added: tuple[int, ...] = ()
    """Versions of which those files are read that they have added."""

    @property
    def key(self) -> tuple[object, ...]:
        """The same for two sinks for which the same is read."""
        return (self.kind, self.place, *sorted(self.options.items()), self.versions, self.added)


class LimitedTargets:
    """Tries the targets of some sinks, all of them at once, when the first is to be read."""

    def __init__(self, targets: Mapping[str, TriedTarget]) -> None:
        self._targets = targets

    def require(self, sink: str) -> None:
        """:class:`RefusedError` when the target of a sink takes too much to read."""
        target = self._targets.get(sink)
        if target is None or self._answers.get(target.key) is not None:
            return
        noun = "folder" if target.kind == "files" else "table"
        option = f"{option_naming(sink)}…"
        advice = f"Is it the right one? One that you name is read without limits: {option}"
        raise self._answers.why_none(
            f"the {noun} of sink {sink!r}", target.place, advice, StoreUnavailableError
        )

    def is_sure(self, sink: str) -> bool:
        """Whether it is known what reading the target takes: not if some of it cannot be read here.

        What other programs make of such a file nobody knows. A target that is not tried, because
        the user has named it, has no limits.
        """
        target = self._targets.get(sink)
        return target is None or self._answers.get(target.key) == _TRIED.encode()

    @cached_property
    def _answers(self) -> LimitedAnswers:
        return LimitedAnswers(__name__, {each.key: each for each in self._targets.values()})


Reader = Callable[[TriedTarget, TriedRows], None]


def main() -> None:
    """Try the targets at standard input, and print a line for each that does not take too much:
    whether all of it could be read."""
    patience, asked = read_questions(TriedTarget)
    readers = {kind: _reader_of(kind) for kind in sorted({target.kind for target in asked})}
    limit_this_process(limits.TABLE_MEMORY, limits.TABLE_SECONDS, patience)
    rows = TriedRows(patience)
    for target in asked:
        rows.is_sure, is_whole = True, False
        with left_to_the_audit():
            readers[target.kind](target, rows)
            is_whole = True
        sys.stdout.write(f"{_TRIED if is_whole and rows.is_sure else 'not sure'}\n")
        sys.stdout.flush()


def _reader_of(kind: str) -> Reader:
    """What reads targets of a kind, with all that it imports: only what follows is limited."""
    if kind == "delta":
        from seamark.audit import delta

        return delta.trier()
    if kind == "iceberg":
        from seamark.audit import iceberg

        return iceberg.trier()
    from seamark.audit import tried_folders

    return tried_folders.trier()


if __name__ == "__main__":
    main()
