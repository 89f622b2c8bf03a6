"""``seamark gc``: remove what unfinished writes left behind."""

from __future__ import annotations

import time

import click

from seamark._common.text import age_text, duration_text, size_text
from seamark.blobs.contract import Entry
from seamark.cli.commands import PLACE, Command, duration
from seamark.cli.layout import or_dash, print_rows
from seamark.cli.output import Document, print_answer
from seamark.cli.removal import removal_options, require_store, run_removal, show_removal
from seamark.cli.store_argument import opened_store
from seamark.store import CheckpointStore
from seamark.store.cleanup import INTERRUPTED
from seamark.store.partitioned_state import STATE_PREFIX
from seamark.store.plans import PLANS_PREFIX


@click.command("gc", cls=Command)
@click.argument("store", type=PLACE)
@click.option(
    "--min-age",
    type=duration,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Keep anything younger: it may be a save in progress.",
)
@removal_options
def command(store: str, min_age: float, **options: bool) -> None:
    """Remove what unfinished writes left behind.

    That is state without a manifest, temporary files, plans of epochs that no start needs any more,
    and partitioned state that no checkpoint refers to.

    Shows what it would remove and why; --yes does it. A store that a pipeline is using is left
    alone.
    """
    with opened_store(store) as opened:
        require_store(opened, or_empty=True)
        document = plan(opened, min_age)
        run_removal(opened, "gc", document, lambda: _do(opened, document, min_age), **options)
    print_answer(document, _show)


def plan(store: CheckpointStore, min_age: float) -> Document:
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


def _do(store: CheckpointStore, document: Document, min_age: float) -> None:
    removed = store.cleanup_orphans(min_age)
    document["removed"] = int(removed)
    document["warnings"] += [why for why in removed.left_alone if why not in document["warnings"]]


def _show(document: Document) -> None:
    rows = document["remove"]
    if rows:
        print_rows(
            ("SIZE", "WHEN", "REASON", "WHAT"),
            [
                [
                    or_dash(row["bytes"], size_text),
                    age_text(row["modified_ms"], time.time()),
                    row["reason"],
                    row["key"],
                ]
                for row in rows
            ],
            right="SIZE",
        )
    age = duration_text(document["min_age_seconds"])
    show_removal(document, f"Nothing to remove that is older than {age}.")
