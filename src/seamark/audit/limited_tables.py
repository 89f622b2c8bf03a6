"""Whether tables that only a store names can be opened with limited memory and time.

A log of some hundred kilobytes can unpack to gigabytes. So a process of its own opens the same
versions first, where the operating system sets the limits. They hold for all tables together.

Tests: ``tests/audit/test_limited_tables.py``.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec

from seamark import limits
from seamark._common.limited_process import Answer, ask_process, limit_this_process
from seamark._redaction import redacted
from seamark.errors import RefusedError, StoreUnavailableError


class TriedTable(msgspec.Struct, frozen=True):
    """A table, and what an audit reads of it."""

    kind: str
    place: str
    options: dict[str, str]
    versions: tuple[int | None, ...]
    """Versions of which all files are looked up; the newest is None."""
    added: tuple[int, ...] = ()
    """Versions of which those files are looked up that they have added."""

    @property
    def key(self) -> tuple[object, ...]:
        """The same for two sinks for which the same is opened."""
        return (self.kind, self.place, *sorted(self.options.items()), self.versions, self.added)


class LimitedTables:
    """Tries the tables of some sinks, all of them at once, when the first is to be opened."""

    def __init__(self, tables: Mapping[str, TriedTable]) -> None:
        self._tables = tables

    def require(self, sink: str) -> None:
        """:class:`RefusedError` when the table of a sink takes too much to open."""
        if (table := self._tables.get(sink)) is None or table.key in self._opened:
            return
        place = redacted(table.place)
        name_it = f"Is it the right one? One that you name is read without limits: --target {sink}="
        if self._answer.is_late:
            raise StoreUnavailableError(
                f"the table of sink {sink!r} has not answered: the tables that the store names may "
                f"take {limits.TABLE_PATIENCE} s together",
                where=place,
                hint=f"{name_it}…",
            )
        raise RefusedError(
            f"the table of sink {sink!r} cannot be read with {limits.TABLE_MEMORY // limits.MIB} "
            f"MiB of memory and {limits.TABLE_SECONDS} s of processor time",
            where=": ".join(filter(None, (place, redacted(self._answer.last_words)))),
            hint=f"These are the limits of all tables that a store names. {name_it}…",
        )

    @cached_property
    def _asked(self) -> dict[tuple[object, ...], TriedTable]:
        return {table.key: table for table in self._tables.values()}

    @cached_property
    def _answer(self) -> Answer:
        question = msgspec.json.encode([*self._asked.values()])
        return ask_process(__name__, question, patience=limits.TABLE_PATIENCE)

    @cached_property
    def _opened(self) -> set[tuple[object, ...]]:
        return {key for key, _ in zip(self._asked, self._answer.lines, strict=False)}


def main() -> None:
    """Try the tables at standard input, and print a line for each that does not take too much."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=list[TriedTable])
    openers = {kind: _opener_of(kind) for kind in sorted({table.kind for table in asked})}
    limit_this_process(limits.TABLE_MEMORY, limits.TABLE_SECONDS)
    for table in asked:
        try:
            openers[table.kind](table)
        except (MemoryError, RuntimeError):  # also when no thread can be started
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise
            # the audit meets the same, and says it better
        sys.stdout.write("tried\n")
        sys.stdout.flush()


def _opener_of(kind: str) -> Callable[[TriedTable], None]:
    """What opens tables of a kind, with all that it imports: only what follows is limited."""
    if kind == "delta":
        from seamark.audit import delta

        return delta.opener()
    from seamark.audit import iceberg

    return iceberg.opener()


if __name__ == "__main__":
    main()
