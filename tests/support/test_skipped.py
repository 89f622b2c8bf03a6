"""A run without the servers says at its very end how many tests it has left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.skipped import skipped_line

ROOT = Path(__file__).resolve().parents[2]


def test_skipped_tests_are_counted_for_each_server_and_others_are_not() -> None:
    reasons = [
        "Skipped: Redis cannot be had: Redis is not installed (Debian: redis-server)",
        "Skipped: Redis is not installed (Debian: redis-server)",
        "Skipped: Azure cannot be had: node is not installed (azurite needs node and npm)",
        "Skipped: no file system can be mounted: not root",
    ]
    assert skipped_line(reasons[1:2]).startswith("skipped: 1 without Redis; make test SERVERS=")
    assert skipped_line(reasons[2:]) == "skipped: 1 without Azure"
    assert skipped_line(reasons).startswith("skipped: 1 without Azure, 2 without Redis; ")
    assert skipped_line(reasons[3:]) == ""


def test_the_last_line_of_a_run_without_redis_counts_what_was_skipped() -> None:
    """Also a test that starts a server of its own, in its midst."""
    tests = [
        "tests/support/test_databases.py::test_redis_answers",
        "tests/progress/redis/test_client.py::test_a_server_that_came_back_empty_is_told",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=os.environ | {"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "skipped: 2 without Redis; make test SERVERS=install installs what is missing"
