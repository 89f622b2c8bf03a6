"""A function of the user's as a sink, with the guarantee that a function can give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from seamark.errors import InvalidInputError
from seamark.sinks.contract import Committable, Description, Epoch, Guarantee, Receipt, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EpochNumber(int):
    """The number of an epoch, and the timeline that it is a number of."""

    timeline: str

    def __new__(cls, number: int, timeline: str) -> Self:
        made = super().__new__(cls, number)
        made.timeline = timeline
        return made


class ForeachBatchSink(Sink):
    """Calls ``fn(df, epoch)`` while the epoch is staged, so before its checkpoint exists.

    After a crash the function runs again with the same epoch, and what it did may be seen before
    the checkpoint or without it. ``idempotent=True`` is your word that a second call with the same
    epoch changes nothing; Delta's ``txnAppId`` and ``txnVersion`` give that::

        def to_delta(df, epoch):
            df.write.format("delta").mode("append").option(
                "txnAppId", f"trades-{epoch.timeline}"
            ).option("txnVersion", epoch).save(path)

    ``epoch`` is a number that also knows its timeline. After a rollback or a reset the numbers
    come again under another timeline, so the number alone would make the table skip new rows.

        ForeachBatchSink(to_delta, idempotent=True)
    """

    remembers = False

    def __init__(
        self,
        fn: Callable[[DataFrame, EpochNumber], object],
        *,
        idempotent: bool = False,
        name: str | None = None,
    ) -> None:
        if not callable(fn):
            raise InvalidInputError(
                f"a ForeachBatchSink calls a function (df, epoch), not {type(fn).__name__}"
            )
        self.guarantee = Guarantee.IDEMPOTENT if idempotent else Guarantee.AT_LEAST_ONCE
        self._fn = fn
        self._name = name or _name_of(fn)

    def describe(self) -> Description:
        idempotent = self.guarantee is Guarantee.IDEMPOTENT
        return Description("function", self._name, {"idempotent": idempotent})

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        self._fn(df, EpochNumber(epoch.number, epoch.timeline))

    def prepare(self) -> Committable:
        return {}

    def commit(self, committable: Committable) -> None:
        """Nothing is left to do: the function has shown the rows already."""

    def abort(self, attempt: str) -> None:
        """Nothing can be taken back: only the function knows what it did."""

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return None


def _name_of(fn: Any) -> str:
    """A name that is the same in every process: no address, no module of a notebook."""
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__
