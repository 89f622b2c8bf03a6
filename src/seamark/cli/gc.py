"""``seamark gc``: remove what unfinished writes left behind."""

from __future__ import annotations

import time

import click

from seamark._common.text import age_text, duration_text, size_text
from seamark.blobs.contract import Entry
from seamark.cli.commands import PLACE, Command, duration
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.removal import (
    claim_to_remove,
    how_to_do_it,
    options_needed,
    removal_options,
    require_store,
)
from seamark.cli.store_argument import opened_store
from seamark.store import CheckpointStore
from seamark.store.cleanup import INTERRUPTED
from seamark.store.partitioned import STATE_PREFIX
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
def command(store: str, min_age: float, yes: bool, take_over: bool, force: bool) -> None:
    """Remove what unfinished writes left behind.

    That is state without a manifest, temporary files, plans of epochs that no start needs any more,
    and partitioned state that no checkpoint refers to.

    Shows what it would remove and why; --yes does it. A store that a pipeline is using is left
    alone.
    """
    with opened_store(store) as opened:
        require_store(opened, or_empty=True)
        document = plan(opened, min_age)
        if not yes:
            document["needs"] = options_needed(opened, take_over=take_over, force=force)
        if yes and (document["remove"] or take_over):
            claim_to_remove(opened, "gc", take_over=take_over, force=force)
            _do(opened, document, min_age)
    print_answer(document, lambda clean: show(clean, yes=yes))


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
    document["done"] = True


def show(document: Document, *, yes: bool) -> None:
    """Lay the document out for a person."""
    rows = document["remove"]
    if rows:
        print_rows(
            ("SIZE", "WHEN", "REASON", "WHAT"),
            [
                [
                    size_text(row["bytes"]) if row["bytes"] is not None else "–",
                    age_text(row["modified_ms"], time.time()),
                    row["reason"],
                    row["key"],
                ]
                for row in rows
            ],
            right="SIZE",
        )
    for warning in document["warnings"]:
        print_paragraph(f"warning: {warning}")
    freed = size_text(document["freed_bytes"])
    if not rows:
        age = duration_text(document["min_age_seconds"])
        print_paragraph(f"Nothing to remove that is older than {age}.")
    elif document["done"]:
        print_paragraph(f"Removed {document['removed']}, about {freed}.")
    else:
        print_paragraph(f"Would remove {len(rows)}, about {freed}.")
        if not yes:
            print_hint(how_to_do_it(document["needs"]))
