"""``seamark prune``: remove checkpoints that a rule does not keep."""

from __future__ import annotations

import click

from seamark._common.text import age_text, size_text
from seamark.cli.checkpoint_summary import CheckpointSummary, summarize_checkpoints
from seamark.cli.commands import PLACE, Command, duration
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint, styled
from seamark.cli.removal import (
    claim_to_remove,
    how_to_do_it,
    options_needed,
    removal_options,
)
from seamark.cli.store_argument import opened_store
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
def command(
    store: str,
    keep: int | None,
    keep_within: float | None,
    yes: bool,
    take_over: bool,
    force: bool,
) -> None:
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
        if not yes:
            document["needs"] = options_needed(opened, take_over=take_over, force=force)
        if yes and (document["remove"] or take_over):
            claim_to_remove(opened, "prune", take_over=take_over, force=force)
            _do(opened, document, keep, keep_within)
    print_answer(document, lambda clean: show(clean, yes=yes))


def _do(store: CheckpointStore, document: Document, keep: int | None, within: float | None) -> None:
    left = sum(row["reason"] == INTERRUPTED for row in document["remove"])
    removed = store.prune(keep, within=within)
    document["removed"] = removed + left
    document["removed_states"] = removed.states
    document["warnings"] += removed.left_alone
    document["done"] = True


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


def show(document: Document, *, yes: bool) -> None:
    """Lay the document out for a person."""
    for key in ("keep", "remove"):
        rows = document[key]
        if rows:
            print_rows(
                ("", "ID", "EPOCH", "WHEN", "SIZE", "REASON"),
                [
                    [
                        styled(key),
                        str(row["id"]),
                        str(row["epoch"] if row["epoch"] is not None else "–"),
                        age_text(row["timestamp_ms"]) if row["timestamp_ms"] else "–",
                        size_text(row["bytes"]) if row["bytes"] is not None else "–",
                        row["reason"],
                    ]
                    for row in rows
                ],
                right="ID EPOCH SIZE",
            )
            print_paragraph("")
    for warning in document["warnings"]:
        print_paragraph(f"warning: {warning}")
    kept, count = len(document["keep"]), len(document["remove"])
    freed = size_text(document["freed_bytes"])
    if not count:
        print_paragraph(f"Nothing to remove; {kept} kept.")
    elif document["done"]:
        print_paragraph(f"Removed {document['removed']}, about {freed}; {kept} kept.")
    else:
        print_paragraph(f"Would remove {count}, about {freed}, and keep {kept}.")
        if not yes:
            print_hint(how_to_do_it(document["needs"]))
