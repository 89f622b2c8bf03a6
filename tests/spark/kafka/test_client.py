"""Asking Kafka without Spark."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.errors import SourceUnavailableError
from seamark.spark.kafka import client


def test_a_broker_that_stops_in_the_middle_of_the_questions_is_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")

    class Stopped:
        """Answers the first question alone."""

        def __init__(self, _: Any) -> None:
            pass

        def list_topics(self, timeout: float) -> Any:
            return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None})})

        def describe_topics(self, _: Any, request_timeout: float) -> dict[str, Future[Any]]:
            return {"t": Future()}

    monkeypatch.setattr(admin, "AdminClient", Stopped)
    settings = {"bootstrap.servers": "broker:9092"}
    with pytest.raises(SourceUnavailableError, match="Kafka does not answer") as failed:
        client.look_at(settings, {"t": {0: 5}}, 0.1)
    assert "broker:9092" in str(failed.value)
