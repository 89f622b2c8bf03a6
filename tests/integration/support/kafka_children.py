"""Processes that write to Kafka, to be paused and killed inside a commit."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from seamark.sinks import Committable
from seamark.sinks.kafka.ledger import Entry
from tests.sinks.support.kafka_records import HandWrittenRecords, opened


class StopsBeforeTheCommit(HandWrittenRecords):
    """The whole process stops when its rows are sent, and before they are committed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        whole_epoch = self._epochs._whole_epoch

        def stopping(*given: Any) -> Entry:
            entry = whole_epoch(*given)
            os.kill(os.getpid(), signal.SIGSTOP)
            return entry

        vars(self._epochs)["_whole_epoch"] = stopping


def commit_and_stop(
    reports: Connection, servers: str, topic: str, staging: Path, committable: Committable
) -> None:
    """What the driver does that will be paused."""
    sink = opened(StopsBeforeTheCommit(servers, topic, key="n", staging=staging))
    reports.send(os.getpid())
    try:
        sink.commit(committable)
        reports.send("done")
    except BaseException as error:  # noqa: BLE001 - told to the test
        reports.send(repr(error))
