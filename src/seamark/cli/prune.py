"""``seamark prune`` and ``seamark gc``: remove what is not kept, or what unfinished writes left."""

from __future__ import annotations

import time
from functools import partial

import click

from seamark._common.text import age_text, duration_text, size_text
from seamark.cli.commands import PLACE, Command, duration
from seamark.cli.layout import or_dash, print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, styled
from seamark.cli.removal import removal_options, require_store, run_removal, show_removal
from seamark.cli.store_argument import opened_store
from seamark.reports.checkpoint_summary import CheckpointSummary, summarize_checkpoints
from seamark.reports.leftovers import plan_gc
from seamark.store import CheckpointStore
from seamark.store.cleanup import INTERRUPTED
from seamark.store.retention import Verdict


@click.command("prune", cls=Command)
@click.argument("store", type=PLACE)
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Keep the newest N valid ones."
)
@click.option(
    "--keep-within",
    type=duration,
    metavar="DURATION",
    help="Keep all that are younger than this, like 7d.",
)
@removal_options
def prune_command(store: str, keep: int | None, keep_within: float | None, **options: bool) -> None:
    """Remove checkpoints that a rule does not keep.

    Shows what it would keep and remove and why; --yes does it. Pinned checkpoints, and all that a
    kept one builds on, always stay. A store that a pipeline is using is left alone.
    """
    if keep is None and keep_within is None:
        raise click.UsageError("Say what to keep: --keep N, --keep-within DURATION, or both.")
    with opened_store(store) as opened:
        known = summarize_checkpoints(opened)
        verdicts = opened.plan_prune(keep, within=keep_within)
        document = _document(opened, verdicts, known)
        do = partial(_do, opened, document, keep, keep_within)
        run_removal(opened, "prune", document, do, **options)
    print_answer(document, _show)


def _do(store: CheckpointStore, document: Document, keep: int | None, within: float | None) -> None:
    left = sum(row["reason"] == INTERRUPTED for row in document["remove"])
    removed = store.prune(keep, within=within)
    document["removed"] = removed + left
    document["removed_states"] = removed.states
    document["warnings"] += removed.left_alone


def _document(
    store: CheckpointStore, verdicts: list[Verdict], known: dict[int, CheckpointSummary]
) -> Document:
    rows = [_row(verdict, known.get(verdict.checkpoint_id)) for verdict in verdicts]
    remove = [row for row in rows if row["verdict"] == "remove"]
    return {
        "store": store.url,
        "keep": [row for row in rows if row["verdict"] == "keep"],
        "remove": remove,
        "freed_bytes": sum(row["bytes"] or 0 for row in remove),
        "done": False,
        "removed": 0,
        "removed_states": 0,
        "warnings": [],
        "needs": [],
    }


def _row(verdict: Verdict, about: CheckpointSummary | None) -> Document:
    return {
        "id": verdict.checkpoint_id,
        "verdict": "keep" if verdict.keep else "remove",
        "reason": verdict.reason,
        "epoch": about.epoch if about else None,
        "timestamp_ms": about.timestamp_ms if about else None,
        "bytes": about.new_bytes if about else None,
    }


def _show(document: Document) -> None:
    for key in ("keep", "remove"):
        rows = document[key]
        if rows:
            print_rows(
                ("", "ID", "EPOCH", "WHEN", "SIZE", "REASON"),
                [
                    [
                        styled(key),
                        str(row["id"]),
                        or_dash(row["epoch"]),
                        or_dash(row["timestamp_ms"] or None, age_text),
                        or_dash(row["bytes"], size_text),
                        row["reason"],
                    ]
                    for row in rows
                ],
                right="ID EPOCH SIZE",
            )
            print_paragraph("")
    kept = len(document["keep"])
    nothing = f"Nothing to remove; {kept} kept."
    show_removal(document, nothing, f"; {kept} kept", f", and keep {kept}")


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
def gc_command(store: str, min_age: float, **options: bool) -> None:
    """Remove what unfinished writes left behind.

    That is state without a manifest, temporary files, plans of epochs that no start needs any more,
    and partitioned state that no checkpoint refers to.

    Shows what it would remove and why; --yes does it. A store that a pipeline is using is left
    alone.
    """
    with opened_store(store) as opened:
        require_store(opened, or_empty=True)
        document = plan_gc(opened, min_age)
        run_removal(opened, "gc", document, lambda: _collect(opened, document, min_age), **options)
    print_answer(document, _show_orphans)


def _collect(store: CheckpointStore, document: Document, min_age: float) -> None:
    removed = store.cleanup_orphans(min_age)
    document["removed"] = int(removed)
    document["warnings"] += [why for why in removed.left_alone if why not in document["warnings"]]


def _show_orphans(document: Document) -> None:
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
