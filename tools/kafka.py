"""Have Kafka for the integration tests: a broker, and Spark's connector to it, by Maven.

    python -m tools.kafka --stamp .venv/kafka.stamp

Needs Maven and a way to Maven Central or a mirror of it. Where it cannot be had that is no error:
the tests that want it are skipped, and a line says so. About 60 MB.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.environment import ROOT

FOLDER = ROOT / ".venv" / "kafka"
BROKER = FOLDER / "broker"
CONNECTOR = FOLDER / "connector"

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# Spark 4.3 has no connector of its own version on Maven Central; that of 4.2 links against it.
_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)
_POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>seamark</groupId><artifactId>kafka-broker</artifactId><version>1</version>
<dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version>
</dependency></dependencies></project>
"""
_SECONDS = 600


def broker_jars() -> list[Path]:
    """The jars of the broker; none where they were not fetched."""
    return sorted(BROKER.glob("*.jar"))


def connector_jars() -> list[Path]:
    """The jars that Spark needs to read from Kafka; none where they were not fetched."""
    return sorted(CONNECTOR.glob("*.jar"))


def fetch() -> str:
    """Fetch what is missing; what went wrong, or the empty text."""
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven (mvn) is not installed"
    try:
        if not broker_jars():
            with tempfile.TemporaryDirectory() as folder:
                pom = Path(folder, "pom.xml")
                pom.write_text(_POM)
                goal = [f"{_PLUGIN}:copy-dependencies", f"-DoutputDirectory={BROKER}"]
                _run([maven, "-q", "-B", "-f", str(pom), *goal, "-DincludeScope=runtime"])
        if len(connector_jars()) < len(_JARS):
            for jar in _JARS:
                goal = [f"{_PLUGIN}:copy", f"-Dartifact={jar}", f"-DoutputDirectory={CONNECTOR}"]
                _run([maven, "-q", "-B", *goal])
    except subprocess.TimeoutExpired:
        return f"Maven did not finish in {_SECONDS} s"
    except subprocess.CalledProcessError as error:
        return f"Maven failed: {error.output.strip()[-300:]}"
    return ""


def _run(command: list[str]) -> None:
    subprocess.run(
        command,
        check=True,
        timeout=_SECONDS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> int:
    """Fetch, tell what is skipped, and write the stamp if all is there."""
    parser = argparse.ArgumentParser(description="Have Kafka for the integration tests.")
    parser.add_argument("--stamp", type=Path, required=True, help="file to write at the end")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not broker_jars() or len(connector_jars()) < len(_JARS):
        print("Fetching Kafka for the tests (once, about 60 MB, by Maven)", flush=True)
    if wrong := fetch():
        print(f"WARNING: the tests with Kafka will be SKIPPED: {wrong}", file=sys.stderr)
        return 0
    (ROOT / given.stamp).write_text("".join(f"{jar}\n" for jar in connector_jars()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
