"""Whether a store can be relied on, as a plain document.

Tests: ``tests/cli/test_doctor.py``.
"""

from __future__ import annotations

from seamark._common.text import size_text
from seamark.reports.document import Document
from seamark.reports.leftovers import plan_gc
from seamark.reports.store_space import HOUR, check_space
from seamark.store import CheckpointStore
from seamark.store.content_health import check_contents
from seamark.store.health import HealthCheck, check_place, exit_code_of, ok, tried, warning
from seamark.store.shared_objects import SHARED_PREFIX


def check_store(store: CheckpointStore, *, write: bool) -> list[HealthCheck]:
    """What ``seamark doctor`` checks; with ``write`` small probes are written and removed again."""
    checks = check_place(store.backend, write=write)
    if checks[0].verdict == "failed":
        return checks
    checks += check_contents(store)
    if all(check.verdict != "failed" for check in checks if check.name == "format"):
        checks += check_space(store)
        checks.append(tried("leftovers", lambda: _leftovers(store)))
    return checks


def _leftovers(store: CheckpointStore) -> HealthCheck:
    plan = plan_gc(store, HOUR)
    rows = [row for row in plan["remove"] if not row["key"].startswith(SHARED_PREFIX)]
    if rows:
        size = size_text(sum(row["bytes"] or 0 for row in rows))
        return warning(
            "leftovers",
            f"{len(rows)} of unfinished writes, {size}, older than an hour",
            "They do no harm and take space: 'seamark gc STORE' shows and removes them.",
        )
    if plan["warnings"]:
        return warning("leftovers", plan["warnings"][0], "See 'seamark gc STORE'.")
    return ok("leftovers", "nothing of unfinished writes is older than an hour")


def health_document(url: str, checks: list[HealthCheck]) -> Document:
    """What ``seamark doctor --json`` prints."""
    return {
        "store": url,
        "checks": [
            {
                "name": check.name,
                "verdict": check.verdict,
                "found": check.found,
                "advice": check.advice or None,
            }
            for check in checks
        ],
        "warnings": sum(check.verdict == "warning" for check in checks),
        "failed": sum(check.verdict == "failed" for check in checks),
        "exit_code": exit_code_of(checks),
    }
