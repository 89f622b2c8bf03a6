"""What a test run says at its end about tests that were skipped because a server is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NEEDS = re.compile(r"(\w+) (?:cannot be had|is not installed)\b")
_INSTALLED_BY_MAKE = {"Redis", "PostgreSQL"}


def skipped_line(reasons: Iterable[str]) -> str:
    """Count the skipped tests for each server that is missing, in one line; empty for none."""
    servers = Counter(match[1] for reason in reasons if (match := _NEEDS.search(reason)))
    if not servers:
        return ""
    counts = ", ".join(f"{count} without {server}" for server, count in sorted(servers.items()))
    hint = "; make test SERVERS=install installs what is missing"
    return f"skipped: {counts}{hint if servers.keys() & _INSTALLED_BY_MAKE else ''}"
