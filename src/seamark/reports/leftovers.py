"""What unfinished writes left behind in a store, as a plain document.

Tests: ``tests/cli/test_gc.py``.
"""

from __future__ import annotations

from seamark.blobs.contract import Entry
from seamark.reports.document import Document
from seamark.store import CheckpointStore
from seamark.store.cleanup import INTERRUPTED
from seamark.store.plans import PLANS_PREFIX
from seamark.store.references import STATE_PREFIX


def plan_gc(store: CheckpointStore, min_age: float) -> Document:
    """What would be removed, with the reason of each."""
    orphans = store.plan_cleanup(min_age)
    rows = [_orphan(entry) for entry in orphans]
    return {
        "store": store.url,
        "min_age_seconds": min_age,
        "remove": rows,
        "freed_bytes": sum(row["bytes"] or 0 for row in rows),
        "done": False,
        "removed": 0,
        "warnings": [*orphans.left_alone],
        "needs": [],
    }


def _orphan(entry: Entry) -> Document:
    if entry.key.startswith("tmp/"):
        why = "an unfinished write"
    elif entry.key.startswith(("probe/", "locks/")):
        why = "a probe of the store"
    elif entry.key.startswith(PLANS_PREFIX):
        why = "the plan of an epoch that no start needs any more"
    elif entry.key.startswith(STATE_PREFIX) and entry.key.endswith("/"):
        why = "no checkpoint points at it"
    elif entry.key.endswith(".json"):
        why = INTERRUPTED
    else:
        why = "no checkpoint refers to it"
    return {
        "key": entry.key,
        "bytes": entry.size,
        "modified_ms": int(entry.modified * 1000),
        "reason": why,
    }
