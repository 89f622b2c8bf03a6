"""``seamark list``: the checkpoints of a store, newest first."""

from __future__ import annotations

import os

import click
from rich.text import Text

from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.listing import USABLE, Summary, listing_document, summaries
from seamark.cli.output import Document, age_text, answer, bar, hint, styled
from seamark.cli.places import PLACE
from seamark.cli.settings import Command
from seamark.cli.stores import local_path, opened
from seamark.cli.verifying import check_all
from seamark.errors import DamageError
from seamark.pipeline.figures import seconds_text, size_text
from seamark.store import CheckpointStore

HEADINGS = ("ID", "EPOCH", "WHEN", "STATUS", "TOOK", "NEW", "FULL", "SINKS")


@click.command("list", cls=Command)
@click.argument("store", type=PLACE)
@click.option("--verify", is_flag=True, help="Read and check all bytes instead of trusting.")
def command(store: str, verify: bool) -> None:
    """List the checkpoints of a store, newest first.

    STORE is a path or URL. A manifest is always checked against its own checksum; --verify also
    reads all state, and exits with 3 when something is damaged.
    """
    with opened(store) as found:
        known = summaries(found)
        if verify:
            _verify(found, known)
        document = listing_document(found, known) | {"verified": verify}
    answer(document, lambda clean: show(clean, store))
    if verify and _damaged(document):
        raise click.exceptions.Exit(DamageError.exit_code)


def _verify(store: CheckpointStore, known: dict[int, Summary]) -> None:
    """Put down as damaged what is found to be, and leave out what is gone meanwhile."""
    weights = {one.id: one.new_bytes or 0 for one in known.values()}
    with bar("Verifying", sum(weights.values()), of_bytes=True) as advance:
        checks = check_all(store, list(known), read=set(known), progress=advance, weights=weights)
    for check in checks:
        if check.status == "gone":
            del known[check.id]
        elif check.status == "damaged":
            known[check.id].damage = "; ".join(check.damage)
        elif check.error is not None:
            raise check.error


def show(document: Document, url: str) -> None:
    """Lay the document out for a person."""
    rows = document["checkpoints"]
    if not rows:
        _show_empty(url)
        return
    print_rows(
        HEADINGS,
        [_cells(row) for row in rows],
        right="ID EPOCH TOOK NEW FULL",
        notes=[row["note"] or "" for row in rows],
    )
    newest = document["newest_valid"]
    count = f"{len(rows)} checkpoint{'s' if len(rows) != 1 else ''}"
    told = f"newest valid {newest}" if newest is not None else "none is valid"
    damaged = _damaged(document)
    verified = ""
    if document["verified"]:
        verified = f" · all bytes read, {damaged} damaged" if damaged else " · all bytes verified"
    stored = size_text(document["stored_bytes"])
    print_paragraph(f"{count} · {told} · {stored} stored{verified}")
    _say_next(document, url)


def _damaged(document: Document) -> int:
    return sum(row["status"] == "damaged" for row in document["checkpoints"])


def _cells(row: Document) -> list[str | Text]:
    status = row["status"]
    words = [status]
    words += ["full"] if row["full"] and status in USABLE else []
    words += ["pinned"] if row["pins"] else []
    took, new, full = row["took_seconds"], row["new_bytes"], row["full_bytes"]
    return [
        str(row["id"]),
        str(row["epoch"] if row["epoch"] is not None else "–"),
        age_text(row["timestamp_ms"]) if row["timestamp_ms"] is not None else "–",
        styled(", ".join(words)),
        seconds_text(took) if took is not None else "–",
        size_text(new) if new is not None else "–",
        size_text(full) if full is not None else "–",
        " ".join(row["sinks"]) or "–",
    ]


def _say_next(document: Document, url: str) -> None:
    statuses = [row["status"] for row in document["checkpoints"]]
    newest_id = max(row["id"] for row in document["checkpoints"])
    if "damaged" in statuses:
        hint(f"Which one would a start choose?  seamark recover {url} --explain")
    elif document["newest_valid"] is None:
        hint(f"Why is none valid?  seamark recover {url} --explain")
    elif "committing" in statuses and statuses[0] == "committing":
        hint(f"Which sinks are not finished?  seamark show {url} {newest_id}")


def _show_empty(url: str) -> None:
    print_paragraph("No checkpoints.")
    path = local_path(url)
    if path is None:
        return
    inside = os.listdir(path)
    if any(name.startswith("checkpoint_") for name in inside):
        above = os.path.dirname(os.path.abspath(path))
        hint(f"This looks like the inside of a store. Try: seamark list {above}")
    elif inside and not {"owner.json", "checkpoints", "locks", "working", "tmp"} & set(inside):
        hint("Nothing in this directory belongs to a store. Is the path right?")
