"""A pipeline from files to Kafka, to be killed.

``python -m tests.integration.support.kafka_driver FOLDER BOOTSTRAP TOPIC SHARDS POINT MARKER``
dies at the point of the epoch, which may also be ``sent:N``: with the rows of epoch N sent, and the
commit not asked for. Without a point it runs to the end.
"""

from __future__ import annotations

import sys
from typing import Any

import seamark
from seamark.sinks import KafkaSink
from seamark.sinks.kafka.ledger import Entry
from seamark.testing.crashes import FailPoint, KillHere, die
from tests.pipeline.support.driver import session


class DiesWhenSent(KafkaSink):
    """Kills the process when the rows of an epoch have arrived."""

    def die_at(self, epoch: int, marker: str) -> None:
        whole_epoch = self._epochs._whole_epoch

        def dying(prepared: Any, *given: Any) -> Entry:
            entry = whole_epoch(prepared, *given)
            if prepared.epoch == epoch:
                die(f"reached sent:{epoch}", marker)
            return entry

        vars(self._epochs)["_whole_epoch"] = dying


def main(folder: str, bootstrap: str, topic: str, shards: str, point: str, marker: str) -> None:
    spark = session("local[2]", {})
    sink = DiesWhenSent(bootstrap, topic, key="k", staging=f"{folder}/staging", shards=int(shards))
    hook = None
    if point.startswith("sent:"):
        sink.die_at(int(point.removeprefix("sent:")), marker)
    elif point:
        hook = KillHere(FailPoint.parse(point), marker)
    pipeline = seamark.Pipeline("trades", f"{folder}/store", on_step=hook)
    reader = spark.readStream.schema("n long, k string").option("maxFilesPerTrigger", 1)
    pipeline.sink("rows", pipeline.source("rows", reader.json(f"{folder}/in")), sink)
    pipeline.run()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
