"""A function of the user's as a sink, with the guarantee that a function can give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from seamark.errors import InvalidInputError
from seamark.sinks.contract import Committable, Description, Epoch, Guarantee, Receipt, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EpochNumber(int):
    """The number of an epoch, with the timeline that it belongs to and its key."""

    timeline: str
    """One unbroken history of epochs. A rollback or a reset starts another one."""
    key: str
    """The same for every call with the same rows of one epoch, and never used for others."""

    def __new__(cls, number: int, timeline: str, key: str = "") -> Self:
        made = super().__new__(cls, number)
        made.timeline = timeline
        made.key = key
        return made

    def __getnewargs__(self) -> tuple[int, str, str]:  # type: ignore[override]
        return int(self), self.timeline, self.key  # so that it can go to executors


class ForeachBatchSink(Sink):
    """Calls ``fn(df, epoch)`` while the epoch is staged, so before its checkpoint exists.

    After a crash the function runs again, with the same epoch and on the same rows: what the epoch
    reads is stored before the first call, and every later try goes by it, also in another process.
    What the function did may be seen before the checkpoint or without it. ``idempotent=True`` is
    your word that a second call with the same epoch changes nothing; Delta's ``txnAppId`` and
    ``txnVersion`` give that::

        def to_delta(df, epoch):
            df.write.format("delta").mode("append").option(
                "txnAppId", f"trades/bars/{epoch.timeline}"
            ).option("txnVersion", epoch).save(path)

        ForeachBatchSink(to_delta, idempotent=True)

    ``epoch`` is a number that also has a ``timeline`` and a ``key``. After a rollback or a reset
    the numbers come again under another timeline, so the number alone would make the table skip
    new rows. ``epoch.key`` is one text for all of it, for a target with unique keys.
    """

    shows_at_once = True
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
        self._fn(df, EpochNumber(epoch.number, epoch.timeline, epoch.key))

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
