"""The columns of a record of Kafka are what Spark has computed, whatever the values are."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SEED
from tests.pipeline.support.value_cases import random_case
from tests.pipeline.support.value_target import Services
from tests.pipeline.test_values_through_sinks import problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.sinks.support.kafka_records import Broker

pytestmark = pytest.mark.integration


def failed(spark: SparkSession, root: Path, broker: Broker, seed: str, number: int) -> list[str]:
    """The cases that are bugs."""
    found: Counter[str] = Counter()
    problems = []
    for turn in range(number):
        case = random_case(random.Random(f"{seed}-{turn}-kafka"), "kafka")
        services = Services(kafka=f"{broker.servers}/{broker.new_topic()}")
        problems.append(problem(spark, root / str(turn), case, services, found))
    assert found["shown"]
    return [each for each in problems if each]


@pytest.mark.timeout(600)
def test_kafka_has_the_values_of_a_sample(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    assert failed(spark, tmp_path, broker, "sample", 3) == []


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_kafka_has_any_values(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    seed, number = os.environ[SEED], int(os.environ.get("SEAMARK_CHAOS_VALUES", "60"))
    problems = failed(spark, tmp_path, broker, seed, number)
    assert not problems, f"with {SEED}={seed}:\n" + "\n".join(problems)
