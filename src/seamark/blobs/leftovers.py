"""Names of temporary values, and those that a dead process has left.

Tests: ``tests/store/test_edges.py``.
"""

from __future__ import annotations

import re
from typing import Final

from seamark.blobs.contract import Blobs, Entry

TEMPORARY: Final = "tmp/"
PROBE_PREFIX: Final = "probe/"
_LOCKS: Final = "locks/"
_HEX: Final = "[0-9a-f]"
_OURS: Final = re.compile(
    rf"{TEMPORARY}[0-9]+-{_HEX}{{16}}"
    rf"|{PROBE_PREFIX}{_HEX}{{32}}(\.renamed)?"
    rf"|{_LOCKS}doctor-{_HEX}{{32}}\.lock"
    # of a place that was probed before it was a store
    rf"|{PROBE_PREFIX}{_HEX}{{32}}/({TEMPORARY}[0-9]+-{_HEX}{{16}}"
    rf"|{PROBE_PREFIX}{_HEX}{{32}}(\.renamed)?|{_LOCKS}(writers|doctor-{_HEX}{{32}})\.lock)"
)
"""Names that only this code gives. Anything else next to them belongs to somebody else."""


def unfinished(blobs: Blobs, oldest: float) -> list[Entry]:
    """Temporary files, probes and locks that are at least that old."""
    return [
        entry
        for prefix in (TEMPORARY, PROBE_PREFIX, _LOCKS)
        for entry in blobs.entries(prefix)
        if entry.modified <= oldest and _OURS.fullmatch(entry.key)
    ]
