"""Connectors that Spark does not come with, and how to get them.

Tests: ``tests/spark/test_failures.py``.
"""

from __future__ import annotations

import re
from typing import Final

from seamark.errors import RefusedError
from seamark.spark.kafka_packages import missing_kafka_hint

_NOT_FOUND: Final = re.compile(
    r"DATA_SOURCE_NOT_FOUND|Failed to find (?:the )?data source:? *(?P<format>[\w.$-]*)"
)
_NO_CLASS: Final = re.compile(
    r"(?:NoClassDefFoundError|ClassNotFoundException)(?:: Could not initialize class)?"
    r"[: ]+(?:Class )?(?P<name>[\w./$]+)"
)
_NO_SCHEME: Final = re.compile(r'No FileSystem for scheme "?(?P<scheme>[\w+.-]+)')
_SPARK: Final = "org.apache.spark:{name}_2.13:{version}"
_KAFKA_PACKAGE: Final = "spark-sql-kafka-0-10"
_PACKAGES: Final[tuple[tuple[str, str], ...]] = (
    (r"kafka|commons[./]pool2", _KAFKA_PACKAGE),
    (r"avro", _SPARK.replace("{name}", "spark-avro")),
    (r"protobuf", _SPARK.replace("{name}", "spark-protobuf")),
    (r"kinesis", "the connector of your Kinesis stream"),
    (r"delta", "io.delta:delta-spark_2.13 (the version for this Spark)"),
    (r"iceberg", "org.apache.iceberg:iceberg-spark-runtime (the one for this Spark)"),
    (r"s3a?n?$|s3a", _SPARK.replace("{name}", "spark-hadoop-cloud")),
    (r"abfss?|wasbs?|azure|gs$|gcs", _SPARK.replace("{name}", "spark-hadoop-cloud")),
)


def missing_connector(text: str) -> RefusedError | None:
    """The error for a connector that is not there, or None when a message is about another thing.

    Only classes of connectors that are known are taken for that; any other missing class is left
    to be reported in Spark's own words.
    """
    missing = _missing(text)
    if missing is None:
        return None
    package = next((name for known, name in _PACKAGES if re.search(known, missing.lower())), None)
    if package is None and not _NOT_FOUND.search(text):
        return None
    version = _spark_version()
    if package == _KAFKA_PACKAGE:
        return RefusedError(
            f"Spark has no connector for {missing}",
            where=f"Spark {version} comes without it.",
            hint=missing_kafka_hint(version),
        )
    requirement = (package or "the package of the connector").replace("{version}", version)
    return RefusedError(
        f"Spark has no connector for {missing}",
        where=f"Spark {version} comes without it.",
        hint=f"Add {requirement}: with SparkSession.builder.config('spark.jars.packages', …) "
        "before the session starts, with spark-submit --packages, or as jars with all their "
        "dependencies in spark.jars. If there is none for exactly this version, take the newest "
        "older one.",
    )


def _missing(text: str) -> str | None:
    """The format, class or scheme that was looked for."""
    if (match := _NOT_FOUND.search(text)) is not None:
        named = re.search(r"data source:? *([\w.$-]+)", text)
        return (named[1] if named else match["format"] or "a format").rstrip(".")
    if (match := _NO_CLASS.search(text)) is not None:
        return match["name"].replace("/", ".")
    if (match := _NO_SCHEME.search(text)) is not None:
        return match["scheme"]
    return None


def _spark_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "4"
