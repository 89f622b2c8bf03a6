"""``seamark spark snapshot``: one checkpoint of a directory, running or stopped."""

from __future__ import annotations

import click

from seamark._common.text import seconds_text, size_text
from seamark.cli.common_options import Command, settings
from seamark.cli.output import Document, print_hint, print_json, print_long, progress_bar
from seamark.cli.parameters import PLACE
from seamark.cli.spark.directory_argument import opened_directory, target_store
from seamark.native.snapshot.snapshot import Snapshot, take_snapshot


@click.command("snapshot", cls=Command)
@click.argument("path", type=PLACE)
@click.argument("store", type=PLACE)
@click.option("--batch", type=click.IntRange(0), help="Save this batch instead of the newest one.")
@click.option("--full", is_flag=True, help="Save everything, even what the store already has.")
@click.option("--keep", type=click.IntRange(1), help="Afterwards, prune to this many checkpoints.")
def command(path: str, store: str, batch: int | None, full: bool, keep: int | None) -> None:
    """Save a checkpoint directory in a store.

    The newest committed batch of PATH becomes a checkpoint of STORE, with only the files that the
    store does not have yet. The query may be running. A batch that was planned but not finished is
    saved too, and is replayed first after a restore.
    """
    with opened_directory(path) as directory, target_store(store) as opened:
        with progress_bar("reading", None, of_bytes=True) as advance:
            taken = take_snapshot(
                directory, opened, batch=batch, full=full, keep=keep, advance=advance
            )
        document = snapshot_document(taken)
        if settings().as_json:
            print_json(document)
            return
        print_long(snapshot_line(document))
        if batch is not None and taken.is_new:
            print_hint(f"It is the newest checkpoint now: 'latest' means batch {taken.batch}.")
        print_hint(f"Restore it with: seamark spark restore {store} {taken.checkpoint_id} NEW_PATH")


def snapshot_document(taken: Snapshot) -> Document:
    """What ``--json`` prints about a snapshot."""
    return {
        "id": taken.checkpoint_id,
        "batch": taken.batch,
        "epoch": taken.batch + 1,
        "new": taken.is_new,
        "full": taken.is_full,
        "files": taken.files,
        "bytes": taken.size,
        "in_flight": taken.batch + 1 if taken.in_flight else None,
        "seconds": round(taken.seconds, 6),
    }


def snapshot_line(document: Document) -> str:
    """The same in one line, for people."""
    head = f"checkpoint {document['id']} · batch {document['batch']}"
    if not document["new"]:
        return f"{head} · was there already"
    planned = "" if document["in_flight"] is None else f" · batch {document['in_flight']} in flight"
    return (
        f"{head} · {'full' if document['full'] else 'incremental'} · {document['files']} files, "
        f"{size_text(document['bytes'])}{planned} · {seconds_text(document['seconds'])}"
    )
