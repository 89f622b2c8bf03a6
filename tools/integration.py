"""Fetch the servers of the integration tests: Kafka, HDFS, a REST catalog, an S3 server, a browser,
Prometheus.

    python -m tools.integration --stamp .venv/integration.stamp

Needs Maven and Go, and a way to Maven Central and Go's module proxy, or to mirrors of them. What
cannot be fetched is no error: the tests that want it are skipped, and a line says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import browser, hdfs, iceberg, kafka, prometheus, versitygw
from tools.environment import ROOT
from tools.programs import Unavailable


@dataclass(frozen=True)
class Part:
    """One of the servers: how it is fetched, and what is said if it cannot be."""

    name: str
    effort: str
    is_there: Callable[[], bool]
    fetch: Callable[[], None]
    otherwise: str


PARTS = (
    Part(
        "Kafka",
        "about 60 MB, by Maven",
        kafka.is_there,
        kafka.fetch,
        "the tests with Kafka will be SKIPPED",
    ),
    Part(
        "HDFS",
        "56 MB, by Maven",
        hdfs.is_there,
        hdfs.fetch,
        "the tests with HDFS will be SKIPPED",
    ),
    Part(
        "Iceberg's REST catalog",
        "about 32 MB, by Maven",
        iceberg.is_there,
        iceberg.fetch,
        "the tests with a REST catalog will be SKIPPED",
    ),
    Part(
        "versitygw",
        "an S3 server, built by Go in one to six minutes",
        versitygw.is_there,
        versitygw.fetch,
        "the tests with versitygw will be SKIPPED, those with HDFS use moto as their S3 server",
    ),
    Part(
        "Chromium",
        "a browser by apt-get, as root and if asked for, and axe-core by npm",
        browser.is_there,
        browser.fetch,
        "the tests of the page in a browser will be SKIPPED",
    ),
    Part(
        "Prometheus",
        "by apt-get, as root and if asked for",
        prometheus.is_there,
        prometheus.fetch,
        "the tests of alerts and dashboard with Prometheus will be SKIPPED",
    ),
)


def fetch_all(parts: Sequence[Part] = PARTS) -> bool:
    """Fetch what is missing, tell what is skipped, and say whether all of it is there."""
    is_whole = True
    for part in parts:
        if part.is_there():
            continue
        print(f"Fetching {part.name} for the tests (once; {part.effort})", flush=True)
        started = time.monotonic()
        try:
            part.fetch()
        except Unavailable as error:
            is_whole = False
            print(f"WARNING: {part.otherwise}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"Ready: {part.name} in {time.monotonic() - started:.0f} s", flush=True)
    return is_whole


def main() -> int:
    """Fetch, and write the stamp if all is there."""
    parser = argparse.ArgumentParser(description="Fetch the servers of the integration tests.")
    parser.add_argument("--stamp", type=Path, required=True, help="file to write at the end")
    given = parser.parse_args()
    if fetch_all():
        (ROOT / given.stamp).touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
