"""Java programs that do little for a short time: servers of the tests, and Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from seamark.spark.java import java_home

LIGHT: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""What is compiled well, by the second compiler, must run for long to be worth it."""


def light_java(classes: Iterable[Path]) -> list[str]:
    """The command that runs a class; its name comes next."""
    java = str(java_home() / "bin" / "java")
    return [java, "-Xmx256m", *LIGHT, "-cp", ":".join(map(str, classes))]
