"""Rows on the terminal, for trying things out.

Tests: ``tests/sinks/test_small_sinks.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from seamark.errors import InvalidInputError
from seamark.sinks.contract import Committable, Description, Epoch, Guarantee, Receipt, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WIDEST = 20


class ConsoleSink(Sink):
    """Prints the first ``rows`` rows of an epoch when it is committed, as ``df.show()`` would.

    ``truncate`` cuts long values to 20 characters, or to the number given; ``file`` is standard
    output unless given.
    """

    guarantee = Guarantee.FOR_TRYING_OUT
    remembers = False

    def __init__(
        self, rows: int = 20, truncate: bool | int = True, file: TextIO | None = None
    ) -> None:
        if rows < 1:
            raise InvalidInputError(f"a ConsoleSink prints at least one row, not {rows}")
        self._rows = rows
        self._widest = _WIDEST if truncate is True else int(truncate)
        self._file = file
        self._staged: dict[str, str] = {}
        self._last: tuple[Epoch, str] | None = None

    def describe(self) -> Description:
        return Description("console")

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        first_rows = df.take(self._rows + 1)
        table = _table(df.columns, first_rows[: self._rows], self._widest)
        if len(first_rows) > self._rows:
            table += f"only the first {self._rows} rows are shown\n"
        self._staged[attempt] = f"{epoch.sink}, epoch {epoch.number}\n{table}\n"
        self._last = (epoch, attempt)

    def prepare(self) -> Committable:
        if self._last is None:
            raise InvalidInputError("nothing was staged that could be prepared")
        epoch, attempt = self._last
        return {"epoch": epoch.number, "attempt": attempt}

    def commit(self, committable: Committable) -> None:
        text = self._staged.pop(committable["attempt"], None)
        if text is None:
            return  # printed already, or staged by a process that is gone
        out = self._file or sys.stdout
        out.write(text)
        out.flush()

    def abort(self, attempt: str) -> None:
        self._staged.pop(attempt, None)

    def leftovers(self) -> list[str]:
        return sorted(self._staged)

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return None


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]], widest: int) -> str:
    cells = [list(names), *([_text(value) for value in row] for row in rows)]
    if widest:
        cells = [[_cut(cell, widest) for cell in line] for line in cells]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    rule = "+" + "".join("-" * width + "+" for width in widths) + "\n"
    lines = [
        "|" + "".join(f"{cell:>{width}}|" for cell, width in zip(line, widths, strict=True)) + "\n"
        for line in cells
    ]
    return rule + lines[0] + rule + "".join(lines[1:]) + (rule if rows else "")


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _cut(text: str, widest: int) -> str:
    if len(text) <= widest:
        return text
    return text[:widest] if widest < 4 else text[: widest - 3] + "..."
