"""Rows on the terminal and in the memory of this process, for trying things out and for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from seamark.errors import InvalidInputError
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Guarantee,
    Identity,
    Receipt,
    Sink,
    another_lineage,
    identity_in,
    receipt_of,
    require_given_up,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
_WIDEST = 20


class _SinkForTryingOut(Sink):
    """What is staged is in this process, and gone with it."""

    guarantee = Guarantee.FOR_TRYING_OUT
    remembers = False

    def __init__(self) -> None:
        self._staged: dict[str, Any] = {}

    def abort(self, attempt: str) -> None:
        self._staged.pop(attempt, None)

    def leftovers(self) -> list[str]:
        return sorted(self._staged)


class MemorySink(_SinkForTryingOut):
    """Collects every epoch's rows on the driver; they are gone with the process.

    ``rows`` are all of them in the order of their epochs, ``epochs`` has them by epoch. Neither
    shows an epoch before it is committed.
    """

    consumes_all = True

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[int, list[Row]] = {}
        self._receipts: dict[int, Receipt] = {}
        self._last: Receipt | None = None

    @property
    def rows(self) -> list[Row]:
        """Every row that was committed."""
        return [row for _, rows in sorted(self.epochs.items()) for row in rows]

    def describe(self) -> Description:
        return Description("memory")

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        self._staged.pop(attempt, None)
        self._last = receipt_of(epoch, attempt)
        self._staged[attempt] = (self._last, df.collect())

    def prepare(self) -> Committable:
        if self._last is None or self._last.attempt not in self._staged:
            raise InvalidInputError("nothing was staged that could be prepared")
        last = self._last
        return {
            "epoch": last.epoch,
            "timeline": last.timeline,
            "fingerprint": last.fingerprint,
            "attempt": last.attempt,
        }

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Identity)
        shown = self._receipts.get(prepared.epoch)
        if shown is not None:
            if not prepared.is_shown_by(shown):
                raise another_lineage(shown, prepared, "this MemorySink")
            return
        staged = self._staged.pop(prepared.attempt, None)
        if staged is None:
            return  # staged by a process that is gone, and its rows with it
        receipt, rows = staged
        self.epochs[receipt.epoch] = rows
        self._receipts[receipt.epoch] = receipt

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return self._receipts.get(epoch)

    def newest(self) -> Receipt | None:
        return self._receipts[max(self._receipts)] if self._receipts else None

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        taken = sorted(number for number in self._receipts if number > epoch)
        if taken:
            require_given_up(self._receipts[taken[-1]], of, "this MemorySink")
        for number in reversed(taken):
            del self._receipts[number], self.epochs[number]
        return taken


class ConsoleSink(_SinkForTryingOut):
    """Prints the first ``rows`` rows of an epoch when it is committed, as ``df.show()`` would.

    ``truncate`` cuts long values to 20 characters, or to the number given; ``file`` is standard
    output unless given.
    """

    def __init__(
        self, rows: int = 20, truncate: bool | int = True, file: TextIO | None = None
    ) -> None:
        if rows < 1:
            raise InvalidInputError(f"a ConsoleSink prints at least one row, not {rows}")
        super().__init__()
        self._rows = rows
        self._widest = _WIDEST if truncate is True else int(truncate)
        self._file = file
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
