"""``seamark fork``: begin a new store at a checkpoint of another one."""

from __future__ import annotations

import shlex

import click

from seamark._common.text import size_text
from seamark.cli.commands import PLACE, Command, named_values
from seamark.cli.copy import open_target
from seamark.cli.layout import print_facts, print_paragraph, print_warnings
from seamark.cli.output import Document, print_answer, print_hint, progress_bar
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.pipeline.recovery.fork import (
    Chosen,
    Forked,
    choose,
    choose_again,
    first_of,
    fork_store,
)
from seamark.store import CheckpointStore
from seamark.store.checkpoint_address import CheckpointAddress
from seamark.store.copy.plan import refuse_same_place


@click.command("fork", cls=Command)
@click.argument("origin", metavar="STORE[@ID]", type=PLACE)
@click.argument("target", metavar="NEWSTORE", type=PLACE)
@click.option(
    "--to-storage-option",
    "to_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="Like --storage-option, for NEWSTORE. Default: the same options as for STORE.",
)
def command(origin: str, target: str, to_options: dict[str, str]) -> None:
    """Begin a new store at a checkpoint of another one.

    NEWSTORE gets one checkpoint, with the positions and the state of checkpoint ID of STORE (or of
    its newest valid one) and a history of its own. A pipeline of another name that is started on it
    goes on from there, with sinks of its own. STORE is not changed. If it is interrupted, run the
    same command again.
    """
    address = CheckpointAddress.parse(origin)
    with opened_store(address.store) as here, open_target(target, to_options) as there:
        document = _fork(here, there, address.checkpoint_id)
    print_answer(document, lambda clean: _show(clean, target))


def _fork(here: CheckpointStore, there: CheckpointStore, checkpoint_id: int | None) -> Document:
    refuse_same_place(here, there)
    own = first_of(there)
    if own is not None and own.fork is not None:
        # the command was repeated, or something else was forked there before
        chosen = choose(here, checkpoint_id)
        if own.fork.timeline != chosen.origin.timeline or (
            checkpoint_id not in (None, own.fork.checkpoint_id)
        ):
            raise RefusedError(
                "NEWSTORE is a fork of another checkpoint",
                where=f"{there.url}: of {own.fork.url}@{own.fork.checkpoint_id}",
                hint="Nothing was changed. Choose a new place for the fork.",
            )
        return _document(here, there, Forked(manifest=own, chosen=chosen), outcome="there already")
    chosen = choose(here, checkpoint_id)
    try:
        return _document(here, there, _forked(here, there, chosen))
    except (CheckpointNotFoundError, DamageError) as error:
        if checkpoint_id is not None:
            raise
        again = choose_again(here, chosen, error)
        return _document(here, there, _forked(here, there, again))


def _forked(here: CheckpointStore, there: CheckpointStore, chosen: Chosen) -> Forked:
    size = chosen.manifest.restore_bytes or 0
    with progress_bar("forking", size, of_bytes=True) as advance:
        return fork_store(here, there, chosen, advance=advance)


def _document(
    here: CheckpointStore, there: CheckpointStore, forked: Forked, outcome: str = "forked"
) -> Document:
    manifest, origin = forked.manifest, forked.manifest.fork
    assert origin is not None, "every checkpoint of a fork says where it comes from"
    return {
        "origin": here.url,
        "target": there.url,
        "outcome": outcome,
        "checkpoint": origin.checkpoint_id,
        "epoch": origin.epoch,
        "id": manifest.checkpoint_id,
        "timeline": manifest.timeline,
        "objects": forked.objects,
        "bytes": forked.size,
        "copied_bytes": forked.streamed,
        "skipped": [{"id": number, "reason": why} for number, why in forked.chosen.skipped],
        "pipelines": list(origin.pipelines),
        "targets": [{"kind": kind, "target": target} for kind, target in origin.targets],
    }


def _show(document: Document, target: str) -> None:
    outcome = document["outcome"].capitalize()
    print_paragraph(f"{outcome}: checkpoint {document['checkpoint']} · epoch {document['epoch']}")
    facts = [("of", f"{document['origin']}@{document['checkpoint']}")]
    if document["outcome"] == "forked":
        copied = document["copied_bytes"]
        how = f"{size_text(copied)} copied" if copied else "no bytes copied"
        state = f"{document['objects']} objects, {size_text(document['bytes'])}, verified · {how}"
        facts.append(("state", state))
    print_facts(facts)
    print_warnings(
        f"checkpoint {each['id']} is newer and damaged: {each['reason']}"
        for each in document["skipped"]
    )
    print_paragraph("The origin was not changed. Give the fork a name and sinks of its own.")
    print_hint(f"See it with:  seamark list {shlex.quote(target)}")
