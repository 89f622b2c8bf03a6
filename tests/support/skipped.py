"""Skips tests whose server is missing, and counts them at the end of the run."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest

from tests.support.processes import ServerUnavailable

_NEEDS = re.compile(r"(\w+) (?:cannot be had|is not installed)\b")
_INSTALLED_BY_MAKE = {"Redis", "PostgreSQL"}
Started = TypeVar("Started")


@contextmanager
def or_skip(name: str, server: AbstractContextManager[Started]) -> Iterator[Started]:
    """Run a server. If it is not available, warn and skip the tests that need it."""
    try:
        with server as started:
            yield started
    except ServerUnavailable as error:
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # shown in the summary, but fails no test
            warnings.warn(f"{name} is NOT tested here: {error}", stacklevel=1)
        pytest.skip(f"{name} cannot be had: {error}")


def skipped_line(reasons: Iterable[str]) -> str:
    """Count the skipped tests for each server that is missing, in one line; empty for none."""
    servers = Counter(match[1] for reason in reasons if (match := _NEEDS.search(reason)))
    if not servers:
        return ""
    counts = ", ".join(f"{count} without {server}" for server, count in sorted(servers.items()))
    hint = "; make test SERVERS=install installs what is missing"
    return f"skipped: {counts}{hint if servers.keys() & _INSTALLED_BY_MAKE else ''}"
