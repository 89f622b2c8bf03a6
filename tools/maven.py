"""Fetch jars with Maven, from Maven Central or the mirror that Maven is set up for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.programs import run

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>seamark</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies><dependency>
<groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
</dependency></dependencies></project>
"""
_SECONDS = 600


def copy_jars(artifacts: Sequence[str], folder: Path) -> None:
    """Put these jars, each ``group:name:version``, into a folder, without what they depend on.

    Raises Unavailable without Maven, or if it fails.
    """
    for artifact in artifacts:
        _maven(f"{_PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")


def copy_with_dependencies(artifact: str, folder: Path) -> None:
    """Put the jar ``group:name:version`` and all that it runs with into a folder.

    Raises Unavailable without Maven, or if it fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_POM.format(*artifact.split(":")))
        goal = [f"{_PLUGIN}:copy-dependencies", f"-DoutputDirectory={folder}"]
        _maven("-f", str(pom), *goal, "-DincludeScope=runtime")


def _maven(*arguments: str) -> None:
    run("mvn", ["-q", "-B", *arguments], title="Maven", seconds=_SECONDS)
