"""``seamark list``: the checkpoints of a store, newest first."""

from __future__ import annotations

import os
import shlex
from functools import partial

import click
from rich.text import Text

from seamark._common.text import age_text, elapsed_text, grouped, seconds_text, size_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import fits, or_dash, plural, print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint, progress_bar, styled
from seamark.cli.store_argument import opened_store
from seamark.errors import DamageError, StoreUnavailableError
from seamark.reports.checkpoint_summary import (
    USABLE,
    CheckpointSummary,
    listing_document,
    oldest,
    positions_text,
    short_positions_text,
    summarize_checkpoints,
)
from seamark.reports.places import local_path
from seamark.reports.verification import check_checkpoints, present_ids
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import require_same_history, require_same_timeline
from seamark.store.owner import Owner
from seamark.store.validation import Evidence

HEADINGS = ("ID", "EPOCH", "WHEN", "STATUS", "TOOK", "NEW", "FULL", "SINKS")
OFFSETS = "OFFSETS"
ROWS, LAG, AGE = "ROWS", "LAG", "AGE"


@click.command("list", cls=Command)
@click.argument("store", type=PLACE)
@click.option("--verify", is_flag=True, help="Read all state and check every byte.")
@click.option("--wide", is_flag=True, help="Show rows, offsets, lag and age, however wide that is.")
def command(store: str, verify: bool, wide: bool) -> None:
    """List the checkpoints of a store, newest first.

    STORE is a path or URL. Manifests are always checked against their own checksums, and 'valid'
    says no more than that; --verify also reads all state and exits with 3 when something is
    damaged. If a manifest cannot be read, the other checkpoints are still listed and the exit code
    is 7. The exit code is also 3 when owner.json is older than a checkpoint: then nobody knows what
    was rolled back.
    """
    with opened_store(store) as opened:
        owner, known, unproven = until_settled(partial(_listed, opened, verify=verify), opened.url)
        document = listing_document(opened.url, owner, known)
        document |= {"verified": verify, "without_checksum": unproven}
    print_answer(document, lambda clean: _show(clean, store, wide=wide))
    if (verify and _damaged(document)) or document["owner_problem"]:
        raise click.exceptions.Exit(DamageError.exit_code)
    if document["unreadable"]:
        raise click.exceptions.Exit(StoreUnavailableError.exit_code)


def _listed(
    store: CheckpointStore, *, verify: bool
) -> tuple[Owner, dict[int, CheckpointSummary], list[int]]:
    """:class:`Overtaken` when the newest is pruned before it is verified: there are newer ones.

    Also when the store is rolled back meanwhile: the owner has the pins of what is listed.
    """
    before = store.owner()
    known = summarize_checkpoints(store)
    owner = require_same_history(store, before)
    if not known or not verify:
        return owner, known, []
    newest = max(known)
    unproven = _verify(store, known)
    if newest not in known:
        raise Overtaken
    return require_same_timeline(store, owner), known, unproven


def _verify(store: CheckpointStore, known: dict[int, CheckpointSummary]) -> list[int]:
    """Mark damaged checkpoints as damaged, and drop those that were pruned meanwhile.

    Returns the ids of those whose state has no checksum, so that reading it proves nothing.
    """
    weights = {one.id: one.new_bytes or 0 for one in known.values()}
    ids = list(known)
    there = present_ids(known)
    with progress_bar("Verifying", sum(weights.values()), of_bytes=True) as advance:
        checks = check_checkpoints(
            store, ids, read=set(ids), there=there, progress=advance, weights=weights
        )
    for check in checks:
        if check.status == "gone":
            del known[check.id]
        elif check.status == "damaged":
            known[check.id].damage = "; ".join(check.damage)
        elif check.error is not None:
            known[check.id].error = check.error.what
    return [check.id for check in checks if check.evidence is Evidence.SIZE]


def _show(document: Document, url: str, *, wide: bool) -> None:
    rows = document["checkpoints"]
    if not rows:
        _show_empty(url)
        return
    headings, cells = _with_lag(rows) if wide else _with_offsets(rows)
    print_rows(
        headings,
        cells,
        right="ID EPOCH TOOK NEW FULL LAG AGE",
        notes=[row["note"] or "" for row in rows],
    )
    newest = document["newest_valid"]
    count = plural(len(rows), "checkpoint")
    newest_text = f"newest valid {newest}" if newest is not None else "none is valid"
    newest_text = "owner.json is in doubt" if document["owner_problem"] else newest_text
    at = next((positions_text(row["offsets"]) for row in rows if row["id"] == newest), "")
    newest_text += f" at {at}" if at else ""
    unreadable = f" · {document['unreadable']} unreadable" if document["unreadable"] else ""
    stored = size_text(document["stored_bytes"])
    print_paragraph(f"{count} · {newest_text} · {stored} stored{unreadable}{_proven(document)}")
    _say_next(document, url)


def _proven(document: Document) -> str:
    """What --verify has found out."""
    if not document["verified"]:
        return ""
    damaged, unproven = _damaged(document), len(document["without_checksum"])
    parts = []
    if damaged:
        parts.append(f"all was read, {damaged} damaged")
    elif unproven < len(document["checkpoints"]) and not document["unreadable"]:
        parts.append("all bytes verified" if not unproven else "all bytes with a checksum verified")
    if unproven:
        parts.append(
            f"{unproven} without a checksum of {'its' if unproven == 1 else 'their'} state"
        )
    return "".join(f" · {text}" for text in parts)


def _with_offsets(rows: list[Document]) -> tuple[list[str], list[list[str | Text]]]:
    """The table, with a column for the offsets where that leaves all others as they are."""
    plain = [_cells(row) for row in rows]
    spans = [short_positions_text(row["offsets"]) or "–" for row in rows]
    more = [[*cells, text] for cells, text in zip(plain, spans, strict=True)]
    if fits([[*HEADINGS, OFFSETS], *more]):
        return [*HEADINGS, OFFSETS], more
    return [*HEADINGS], plain


def _with_lag(rows: list[Document]) -> tuple[list[str], list[list[str | Text]]]:
    """The table with columns for rows by sink, offsets, rows not read yet, age of the oldest."""
    cells = [
        [
            *_cells(row),
            _rows_text(row["rows"]),
            positions_text(row["offsets"]) or "–",
            _lag_text(row["lag"]),
            _age_text(row["age_seconds"]),
        ]
        for row in rows
    ]
    return [*HEADINGS, ROWS, OFFSETS, LAG, AGE], cells


def _rows_text(rows: Document) -> str:
    """How many rows of the epoch each sink has got, with its name where there are several."""
    if len(rows) == 1:
        return grouped(*rows.values())
    return ", ".join(f"{sink} {grouped(count)}" for sink, count in rows.items()) or "–"


def _lag_text(lag: Document) -> str:
    rows = [count for parts in lag.values() for count in parts.values()]
    hidden = next((count for count in rows if isinstance(count, str)), None)
    return (hidden or grouped(sum(rows))) if lag else "–"


def _age_text(ages: Document) -> str:
    age = oldest(ages)
    return "–" if age is None else elapsed_text(age)


def _damaged(document: Document) -> int:
    return sum(row["status"] == "damaged" for row in document["checkpoints"])


def _cells(row: Document) -> list[str | Text]:
    status = row["status"]
    labels = [status]
    labels += ["full"] if row["full"] and status in USABLE else []
    labels += ["pinned"] if row["pins"] else []
    return [
        str(row["id"]),
        or_dash(row["epoch"]),
        or_dash(row["timestamp_ms"], age_text),
        styled(", ".join(labels)),
        or_dash(row["took_seconds"], seconds_text),
        or_dash(row["new_bytes"], size_text),
        or_dash(row["full_bytes"], size_text),
        " ".join(row["sinks"]) or "–",
    ]


def _say_next(document: Document, url: str) -> None:
    if document["owner_problem"]:
        print_hint(document["owner_problem"])
        return
    statuses = [row["status"] for row in document["checkpoints"]]
    newest_id = max(row["id"] for row in document["checkpoints"])
    if "damaged" in statuses:
        print_hint(f"Which one would a start choose?  seamark recover {shlex.quote(url)} --explain")
    elif "unreadable" in statuses:
        print_hint(
            f"That proves nothing about them. Try again, or: seamark doctor {shlex.quote(url)}"
        )
    elif document["newest_valid"] is None:
        print_hint(f"Why is none valid?  seamark recover {shlex.quote(url)} --explain")
    elif "committing" in statuses and statuses[0] == "committing":
        print_hint(f"Which sinks are not finished?  seamark show {shlex.quote(url)} {newest_id}")


def _show_empty(url: str) -> None:
    print_paragraph("No checkpoints.")
    path = local_path(url)
    if path is None:
        return
    inside = os.listdir(path)
    if any(name.startswith("checkpoint_") for name in inside):
        above = os.path.dirname(os.path.abspath(path))
        print_hint(f"This looks like the inside of a store. Try: seamark list {shlex.quote(above)}")
    elif inside and not {"owner.json", "checkpoints", "locks", "working", "tmp"} & set(inside):
        print_hint("Nothing in this directory belongs to a store. Is the path right?")
