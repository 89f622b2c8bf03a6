"""``seamark recover --explain``: which checkpoint a start would choose, and why."""

from __future__ import annotations

import shlex

import click

from seamark._common.text import seconds_text, size_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph, print_rows, print_warnings
from seamark.cli.output import Document, print_answer, print_hint, styled
from seamark.cli.store_argument import opened_store
from seamark.errors import StoreUnavailableError
from seamark.reports.checkpoint_summary import positions_text
from seamark.reports.recovery_walk import explain_walk
from seamark.store.validation import Evidence


@click.command("recover", cls=Command)
@click.argument("store", type=PLACE)
@click.option("--explain", is_flag=True, help="Show the search. Nothing is changed.")
def command(store: str, explain: bool) -> None:
    """Explain which checkpoint a start would choose.

    Goes from the newest checkpoint down, as a start does, reads every byte, and says why each one
    is chosen or skipped. The exit code is 3 when none can be used, and 7 when that cannot be
    decided.
    """
    if not explain:
        raise click.UsageError(
            "A pipeline recovers by itself when it starts.\n'seamark recover STORE --explain' "
            "shows which checkpoint it would choose, and\nchanges nothing."
        )
    with opened_store(store) as opened:
        try:
            document = explain_walk(opened)
        except StoreUnavailableError as error:
            raise StoreUnavailableError(
                f"cannot decide: {error.what}",
                where=error.where,
                hint="This says nothing about the checkpoint, so no older one was taken. Try "
                f"again, or see 'seamark doctor {shlex.quote(store)}'.",
            ) from error
    print_answer(document, lambda clean: _show(clean, store))


_PROVEN = {
    Evidence.NO_STATE.value: "no state",
    Evidence.SHA256.value: "{size}, SHA-256 equal",
    Evidence.SIZE.value: "{size}, there in full size, without a checksum",
}


def _show(document: Document, url: str) -> None:
    chosen = document["chosen"]
    rows = [[str(s["id"]), styled("skipped"), s["reason"]] for s in document["skipped"]]
    if chosen is not None:
        rows.append([str(chosen["id"]), styled("chosen"), _why(chosen)])
    if rows:
        print_rows(("ID", "", "REASON"), rows, right="ID")
    print_warnings(document["warnings"])
    if document["outcome"] == "fresh start":
        what = "empty" if not document["skipped"] else "without a checkpoint that still counts"
        print_paragraph(f"The store is {what}: a pipeline would start at epoch 1.")
    elif chosen is None:
        print_paragraph(
            "No checkpoint can be used, and a start would refuse: damage never makes a pipeline "
            "start over. Restore the store from a copy, or give the pipeline a new store."
        )
    else:
        print_paragraph(_consequence(document))
    print_paragraph("Nothing was changed.")
    is_damaged = any(not skipped["superseded"] for skipped in document["skipped"])
    if is_damaged and document["outcome"] != "fresh start":
        print_hint(f"All that is damaged:  seamark verify {shlex.quote(url)} --read-data")


def _why(chosen: Document) -> str:
    reasons = [f"epoch {chosen['epoch']}"]
    reasons += [f"at {text}"] if (text := positions_text(chosen["offsets"])) else []
    reasons.append("manifest valid" if chosen["manifest_sealed"] else "manifest readable")
    files = f"{chosen['files']} files, " if chosen["files"] else ""
    size = f"state {files}{size_text(chosen['state_bytes'])}"
    reasons.append(_PROVEN[chosen["evidence"]].format(size=size))
    if chosen["builds_on"]:
        reasons.append(f"builds on {', '.join(map(str, chosen['builds_on']))}, also checked")
    if chosen["sinks"]:
        again = dict.fromkeys(chosen["commits_again"], " → will be committed again")
        sinks = chosen["sinks"].items()
        texts = [f"{name} {status or 'no status'}{again.get(name, '')}" for name, status in sinks]
        reasons.append("sinks: " + ", ".join(texts))
    return " · ".join(reasons)


def _consequence(document: Document) -> str:
    chosen, skipped = document["chosen"], document["skipped"]
    took = seconds_text(document["seconds"])
    goes_on = f"A start continues with epoch {chosen['epoch'] + 1}."
    if not chosen["of_pipeline"]:
        goes_on = "No pipeline of Seamark wrote it."
    if fork := chosen["fork"]:
        goes_on += f" It is a fork of {fork['url']}@{fork['checkpoint']}."
    text = f"{goes_on} The search took {took}."
    damaged = [str(s["id"]) for s in skipped if not s["superseded"]]
    if damaged and chosen["of_pipeline"]:
        text += (
            f" The epochs of {', '.join(damaged)} run again, from the offsets that were planned "
            "for them where these are still there, so that their rows are the same."
        )
    return text
