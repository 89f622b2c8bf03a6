"""Rows in the memory of this process, for trying things out and for tests.

Tests: ``tests/sinks/test_small_sinks.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seamark.errors import InvalidInputError
from seamark.sinks.contract import Committable, Description, Epoch, Guarantee, Receipt, Sink
from seamark.sinks.lineage import Identity, another_lineage, identity_in, receipt_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


class MemorySink(Sink):
    """Collects every epoch's rows on the driver; they are gone with the process.

    ``rows`` are all of them in the order of their epochs, ``epochs`` has them by epoch. Neither
    shows an epoch before it is committed.
    """

    guarantee = Guarantee.FOR_TRYING_OUT
    consumes_all = True
    remembers = False

    def __init__(self) -> None:
        self.epochs: dict[int, list[Row]] = {}
        self._receipts: dict[int, Receipt] = {}
        self._staged: dict[str, tuple[Receipt, list[Row]]] = {}
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

    def abort(self, attempt: str) -> None:
        self._staged.pop(attempt, None)

    def leftovers(self) -> list[str]:
        return sorted(self._staged)

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return self._receipts.get(epoch)

    def newest(self) -> Receipt | None:
        return self._receipts[max(self._receipts)] if self._receipts else None

    def unpublish_after(self, epoch: int) -> list[int]:
        taken = sorted(number for number in self._receipts if number > epoch)
        for number in reversed(taken):
            del self._receipts[number], self.epochs[number]
        return taken
