"""Kafka for the integration tests: a broker, and Spark's connector to it, by Maven. About 60 MB."""

from __future__ import annotations

from pathlib import Path

from tools.environment import ROOT
from tools.maven import copy_jars, copy_with_dependencies

FOLDER = ROOT / ".venv" / "kafka"
BROKER = FOLDER / "broker"
CONNECTOR = FOLDER / "connector"
TOOLS = FOLDER / "tools"

_BROKER = "org.apache.kafka:kafka_2.13:4.3.1"
_TOOLS = "org.apache.kafka:kafka-tools:4.3.1"
# Spark 4.3 has no connector of its own version on Maven Central; that of 4.2 links against it.
_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)


def broker_jars() -> list[Path]:
    """The jars of the broker; none where they were not fetched."""
    return sorted(BROKER.glob("*.jar"))


def connector_jars() -> list[Path]:
    """The jars that Spark needs to read from Kafka; none where they were not fetched."""
    return sorted(CONNECTOR.glob("*.jar"))


def tools_jars() -> list[Path]:
    """What Kafka's own programs need beside the jars of the broker; none where not fetched."""
    return sorted(TOOLS.glob("*.jar"))


def is_there() -> bool:
    """Whether all of it was fetched."""
    return bool(broker_jars()) and bool(tools_jars()) and len(connector_jars()) >= len(_JARS)


def fetch() -> None:
    """Fetch what is missing. Raises Unavailable if that is not possible."""
    if not broker_jars():
        copy_with_dependencies(_BROKER, BROKER)
    if not tools_jars():
        copy_jars([_TOOLS], TOOLS)
    if len(connector_jars()) < len(_JARS):
        copy_jars(_JARS, CONNECTOR)
