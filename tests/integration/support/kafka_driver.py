"""A pipeline from files to Kafka, to be killed.

``python -m tests.integration.support.kafka_driver FOLDER BOOTSTRAP TOPIC SHARDS POINT MARKER
[LEDGER [POLICY]]`` dies at the point of the epoch, which may also be ``sent:N``: with the rows of
epoch N sent, and the commit not asked for; or ``shown:N``: right after Kafka's commit. With
``hang:N`` it stops as with ``sent:N``, with its JVM, until it is continued and ``FOLDER/resumed``
exists. Without a point it runs to the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import seamark
from seamark.errors import SeamarkError
from seamark.sinks import KafkaSink
from seamark.sinks.kafka.ledger import Entry
from seamark.testing.crashes import FailPoint, KillHere, die
from tests.pipeline.support.driver import hang, session


class InterruptedWhenSent(KafkaSink):
    """Does something else when the rows of an epoch have arrived."""

    def interrupt_at(self, epoch: int, interrupt: Callable[[], None]) -> None:
        whole_epoch = self._epochs._whole_epoch

        def interrupted(prepared: Any, *given: Any) -> Entry:
            entry = whole_epoch(prepared, *given)
            if prepared.epoch == epoch:
                interrupt()
            return entry

        vars(self._epochs)["_whole_epoch"] = interrupted

    def interrupt_after(self, epoch: int, interrupt: Callable[[], None]) -> None:
        show = self._epochs.show

        def interrupted(prepared: Any) -> None:
            show(prepared)
            if prepared.epoch == epoch:
                interrupt()

        vars(self._epochs)["show"] = interrupted


def main(
    folder: str,
    bootstrap: str,
    topic: str,
    shards: str,
    point: str,
    marker: str,
    ledger: str = "",
    policy: Any = "strict",
) -> int:
    spark = session("local[2]", {})
    sink = InterruptedWhenSent(
        bootstrap,
        topic,
        key="k",
        staging=f"{folder}/staging",
        shards=int(shards),
        ledger=ledger or None,
    )
    hook = None
    if point.startswith("shown:"):
        sink.interrupt_after(int(point[6:]), lambda: die(f"reached {point}", marker))
    elif point.startswith("sent:"):
        sink.interrupt_at(int(point[5:]), lambda: die(f"reached {point}", marker))
    elif point.startswith("hang:"):
        sink.interrupt_at(int(point[5:]), lambda: hang(spark, Path(folder)))
    elif point:
        hook = KillHere(FailPoint.parse(point), marker)
    pipeline = seamark.Pipeline("trades", f"{folder}/store", on_step=hook, policy=policy)
    reader = spark.readStream.schema("n long, k string").option("maxFilesPerTrigger", 1)
    pipeline.sink("rows", pipeline.source("rows", reader.json(f"{folder}/in")), sink)
    try:
        pipeline.run()
    except SeamarkError as error:
        print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201
        return error.exit_code
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
