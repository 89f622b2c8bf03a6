"""Spark's connector to Kafka: which jars fit a PySpark, and the settings that fetch them.

PySpark comes without it. Not every release of Spark has a connector of its own version on Maven
Central, and only one release of a module that all of them need is there.

Tests: ``tests/spark/test_kafka_packages.py``.
"""

from __future__ import annotations

import os
import re
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from seamark.errors import InvalidInputError, RefusedError

_GROUP: Final = "org.apache.spark"
_CONNECTOR: Final = "spark-sql-kafka-0-10_2.13"
_TOKENS: Final = "spark-token-provider-kafka-0-10_2.13"
_TOKENS_VERSION: Final = "4.0.0"
_RELEASES: Final = (
    "4.0.0", "4.0.1", "4.0.2", "4.0.3", "4.0.4",
    "4.1.0", "4.1.1", "4.1.2", "4.1.3",
    "4.2.0",
)  # fmt: skip
"""Those that were on Maven Central in November 2026."""


def kafka_packages(version: str | None = None, *, repository: str | None = None) -> dict[str, str]:
    """Settings with which Spark fetches its connector to Kafka when a session starts::

        SparkSession.builder.config(map=seamark.kafka_packages()).getOrCreate()

    For the PySpark that is installed, unless a ``version`` is given. ``repository`` is the URL of
    a mirror of Maven Central that is asked first. :class:`RefusedError` for a Spark that no
    connector is known for.
    """
    connector = connector_version(version or installed_pyspark())
    base = (repository or default_repository()).rstrip("/")
    if not re.match(r"(https?|file)://", base):
        raise InvalidInputError(f"a repository is a URL, which {base!r} is not")
    jar = f"{_TOKENS}/{_TOKENS_VERSION}/{_TOKENS}-{_TOKENS_VERSION}.jar"
    settings = {
        "spark.jars.packages": f"{_GROUP}:{_CONNECTOR}:{connector}",
        # the connector asks for its own version of it, which is not there
        "spark.jars.excludes": f"{_GROUP}:{_TOKENS}",
        "spark.jars": f"{base}/{_GROUP.replace('.', '/')}/{jar}",
    }
    return {**settings, "spark.jars.repositories": base} if repository else settings


def default_repository() -> str:
    """Where Spark itself fetches packages: as its environment says, else Maven Central.

    :class:`RefusedError` when the installed PySpark does not tell.
    """
    return (os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or _maven_central()).rstrip("/")


@cache
def _maven_central() -> str:
    # the address is a constant of the Ivy that comes with PySpark
    spark = find_spec("pyspark")
    folders = spark.submodule_search_locations if spark is not None else None
    for jar in (jar for folder in folders or () for jar in Path(folder).glob("jars/ivy-*.jar")):
        with zipfile.ZipFile(jar) as ivy:
            resolver = ivy.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class")
        if address := re.search(rb"https://[\w./-]+/maven2", resolver):
            return address[0].decode()
    raise RefusedError(
        "the address of Maven Central is not known",
        where="It is taken from the Ivy in PySpark's folder 'jars', which was not found.",
        hint="Give it to kafka_packages(repository=…), or set DEFAULT_ARTIFACT_REPOSITORY.",
    )


def connector_version(version: str) -> str:
    """The connector for a version of Spark: of the same one, or of the newest before it.

    >>> connector_version("4.1.3"), connector_version("4.1.4"), connector_version("4.3.0")
    ('4.1.3', '4.1.3', '4.2.0')
    """
    wanted = _numbers(version)
    older = [release for release in _RELEASES if _numbers(release) <= wanted]
    if wanted[:1] != (4,) or not older:
        raise RefusedError(
            f"no connector to Kafka is known for Spark {version}",
            where=f"Known are those for Spark {_RELEASES[0]} and later versions of Spark 4.",
            hint=f"Look for {_GROUP}:spark-sql-kafka-0-10 of that version yourself.",
        )
    return older[-1]


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def missing_kafka_hint(version: str) -> str:
    """What to put where when Spark has no connector to Kafka."""
    try:
        settings = kafka_packages(version)
    except RefusedError as error:
        return str(error)
    arguments = (
        ("--packages", "spark.jars.packages"),
        ("--exclude-packages", "spark.jars.excludes"),
        ("--jars", "spark.jars"),
    )
    command = " ".join(f"{name} {settings[key]}" for name, key in arguments)
    return (
        "Start the session with SparkSession.builder.config(map=seamark.kafka_packages()), which "
        "sets spark.jars.packages, spark.jars.excludes and spark.jars; it has no effect on a "
        f"session that runs already. With spark-submit: {command}. Without a network: put the "
        f"jars of {_CONNECTOR}, {_TOKENS}, kafka-clients and commons-pool2 into spark.jars."
    )


def installed_pyspark() -> str:
    """The version of the PySpark that is installed; :class:`RefusedError` when there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise RefusedError(
            "PySpark is not installed", hint="pip install 'seamark[spark]'."
        ) from None
