"""The REST catalog that Apache Iceberg tests its own clients with, by Maven.

What it needs of Hadoop is among PySpark's jars.
"""

from __future__ import annotations

from pathlib import Path

from tools.environment import ROOT
from tools.maven import copy_jars, copy_with_dependencies

FOLDER = ROOT / ".venv/iceberg-rest"
_VERSION = "1.10.0"
_SERVER = f"org.apache.iceberg:iceberg-core:{_VERSION}:jar:tests"
_WITH_DEPENDENCIES = (
    f"org.apache.iceberg:iceberg-core:{_VERSION}",
    "org.eclipse.jetty:jetty-servlet:11.0.25",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
_STAMP = FOLDER / "complete"


def is_there() -> bool:
    """Whether all jars were fetched."""
    return _STAMP.exists()


def fetch() -> None:
    """Put the jars into their folder. Raises Unavailable without Maven, or if it fails."""
    for artifact in _WITH_DEPENDENCIES:
        copy_with_dependencies(artifact, FOLDER)
    copy_jars([_SERVER], FOLDER)
    _STAMP.touch()


def server_jars() -> list[Path]:
    """The jars of the server; none when they were not fetched."""
    return sorted(FOLDER.glob("*.jar")) if is_there() else []
