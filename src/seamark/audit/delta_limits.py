"""Whether Delta tables that only a store names can be opened with limited memory and time.

A log of some hundred kilobytes can unpack to gigabytes. So a process of its own opens the same
versions first, where the operating system sets the limits. They hold for all tables together.

Tests: ``tests/audit/test_delta_limits.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property

import msgspec

from seamark import limits
from seamark._common.limited_process import Answer, ask_process, limit_this_process
from seamark._redaction import redacted
from seamark.errors import RefusedError, StoreUnavailableError


class OpenedTable(msgspec.Struct, frozen=True):
    """A table, and the versions of it that are opened; the newest is None."""

    path: str
    options: dict[str, str]
    versions: tuple[int | None, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """The same for two sinks for which the same is opened."""
        return (self.path, *sorted(self.options.items()), self.versions)


class DeltaLimits:
    """Tries the tables of some sinks, all of them at once, when the first is to be opened."""

    def __init__(self, tables: Mapping[str, OpenedTable]) -> None:
        self._tables = tables

    def require(self, sink: str) -> None:
        """:class:`RefusedError` when the table of a sink takes too much to open."""
        if (table := self._tables.get(sink)) is None or table.key in self._opened:
            return
        name_it = f"Is it the right one? One that you name is read without limits: --target {sink}="
        if self._answer.is_late:
            raise StoreUnavailableError(
                f"the table of sink {sink!r} has not answered: the tables that the store names may "
                f"take {limits.TABLE_PATIENCE} s together",
                where=redacted(table.path),
                hint=f"{name_it}…",
            )
        raise RefusedError(
            f"the table of sink {sink!r} cannot be read with {limits.TABLE_MEMORY // limits.MIB} "
            f"MiB of memory and {limits.TABLE_SECONDS} s of processor time",
            where=": ".join(
                filter(None, (redacted(table.path), redacted(self._answer.last_words)))
            ),
            hint=f"These are the limits of all tables that a store names. {name_it}…",
        )

    @cached_property
    def _asked(self) -> dict[tuple[object, ...], OpenedTable]:
        return {table.key: table for table in self._tables.values()}

    @cached_property
    def _answer(self) -> Answer:
        question = msgspec.json.encode([*self._asked.values()])
        return ask_process(__name__, question, patience=limits.TABLE_PATIENCE)

    @cached_property
    def _opened(self) -> set[tuple[object, ...]]:
        return {key for key, _ in zip(self._asked, self._answer.lines, strict=False)}


def main() -> None:
    """Open the tables at standard input, and print a line for each that was opened, or is not."""
    import pyarrow.dataset  # noqa: F401 - before the time is limited
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    limit_this_process(limits.TABLE_MEMORY, limits.TABLE_SECONDS)
    for table in msgspec.json.decode(sys.stdin.buffer.read(), type=list[OpenedTable]):
        for version in table.versions:
            with suppress(DeltaError, OSError, ValueError):  # which the audit says better
                opened = DeltaTable(table.path, version, table.options or None)
                opened.to_pyarrow_dataset()
        sys.stdout.write("opened\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
