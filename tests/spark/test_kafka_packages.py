"""The jars that fit a PySpark, and what a user without them is told."""

from __future__ import annotations

import pytest

import seamark
from seamark.errors import InvalidInputError, RefusedError
from seamark.spark.kafka_packages import (
    connector_version,
    default_repository,
    installed_pyspark,
)
from seamark.spark.missing_connectors import missing_connector


@pytest.mark.parametrize(
    ("spark", "connector"),
    [
        ("4.0.0", "4.0.0"),
        ("4.0.5", "4.0.4"),
        ("4.1.0.dev3", "4.1.0"),
        ("4.2.1", "4.2.0"),
        ("4.3.0", "4.2.0"),
        ("4.10.0", "4.2.0"),
    ],
)
def test_the_connector_is_the_newest_that_is_not_newer_than_spark(
    spark: str, connector: str
) -> None:
    assert connector_version(spark) == connector


@pytest.mark.parametrize("spark", ["3.5.9", "5.0.0", "odd"])
def test_a_spark_that_nothing_is_known_for_is_refused(spark: str) -> None:
    with pytest.raises(RefusedError, match="no connector to Kafka is known"):
        seamark.kafka_packages(spark)


def test_the_settings_fetch_what_the_connector_asks_for_in_vain() -> None:
    central = default_repository()
    settings = seamark.kafka_packages("4.3.0")
    assert settings == {
        "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "spark.jars.excludes": "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
        "spark.jars": f"{central}/org/apache/spark/"
        "spark-token-provider-kafka-0-10_2.13/4.0.0/"
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    }
    assert seamark.kafka_packages() == seamark.kafka_packages(installed_pyspark())


def test_packages_come_from_where_spark_fetches_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)
    assert default_repository().startswith("https://")
    assert default_repository().endswith("/maven2")
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://nexus.example/maven/")
    settings = seamark.kafka_packages("4.3.0")
    assert settings["spark.jars"].startswith("https://nexus.example/maven/org/apache/spark/")


def test_a_mirror_serves_all_of_it() -> None:
    settings = seamark.kafka_packages("4.2.0", repository="https://nexus.example/maven/")
    assert settings["spark.jars.repositories"] == "https://nexus.example/maven"
    assert settings["spark.jars"].startswith("https://nexus.example/maven/org/apache/spark/")
    with pytest.raises(InvalidInputError, match="a repository is a URL"):
        seamark.kafka_packages(repository="nexus.example")


@pytest.mark.parametrize(
    "text",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. Make sure",
        "java.lang.NoClassDefFoundError: org/apache/spark/kafka010/KafkaTokenUtil",
        "java.lang.NoClassDefFoundError: org/apache/commons/pool2/impl/X",
    ],
)
def test_a_missing_jar_is_told_with_what_to_put_where(text: str) -> None:
    found = missing_connector(text)
    assert found is not None
    hint = found.hint or ""
    assert "SparkSession.builder.config(map=seamark.kafka_packages())" in hint
    connector = connector_version(installed_pyspark())
    assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}" in hint
    assert f"--jars {default_repository()}/" in hint
