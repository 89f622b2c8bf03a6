"""Connectors that Spark does not bring along: which package is missing, and how to add it.

Tests: ``tests/spark/test_failures.py``.
"""

from __future__ import annotations

import re
from typing import Final

from seamark.errors import RefusedError

_NOT_FOUND: Final = re.compile(
    r"DATA_SOURCE_NOT_FOUND|Failed to find (?:the )?data source:? *(?P<format>[\w.$-]*)"
)
_NO_CLASS: Final = re.compile(
    r"(?:NoClassDefFoundError|ClassNotFoundException)(?:: Could not initialize class)?"
    r"[: ]+(?:Class )?(?P<name>[\w./$]+)"
)
_NO_SCHEME: Final = re.compile(r'No FileSystem for scheme "?(?P<scheme>[\w+.-]+)')

_SPARK: Final = "org.apache.spark:{name}_2.13:{version}"

_PACKAGES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"kafka|commons[./]pool2"), _SPARK.replace("{name}", "spark-sql-kafka-0-10")),
    (re.compile(r"avro"), _SPARK.replace("{name}", "spark-avro")),
    (re.compile(r"protobuf"), _SPARK.replace("{name}", "spark-protobuf")),
    (re.compile(r"kinesis"), "the connector of your Kinesis stream"),
    (re.compile(r"delta"), "io.delta:delta-spark_2.13 (the version for this Spark)"),
    (re.compile(r"iceberg"), "org.apache.iceberg:iceberg-spark-runtime (the one for this Spark)"),
    (re.compile(r"s3a?n?$|s3a"), "org.apache.spark:spark-hadoop-cloud_2.13:{version}"),
    (re.compile(r"abfss?|wasbs?|azure|gs$|gcs"), _SPARK.replace("{name}", "spark-hadoop-cloud")),
)


def missing_connector(text: str) -> RefusedError | None:
    """The error for a connector that is not there, or None when a message is about another thing.

    Only classes of connectors that are known are taken for that; any other missing class is left
    to be reported in Spark's own words.
    """
    missing = _missing(text)
    if missing is None:
        return None
    package = next((name for known, name in _PACKAGES if known.search(missing.lower())), None)
    if package is None and not _NOT_FOUND.search(text):
        return None
    version = _spark_version()
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
