"""``seamark recover --explain``: which checkpoint a start would choose, and why."""

from __future__ import annotations

import click

from seamark._common.text import seconds_text, size_text
from seamark.cli.checkpoint_document import chain_of, fork_document, operators_of, sinks
from seamark.cli.checkpoint_summary import positions, positions_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph, print_rows, print_warnings
from seamark.cli.output import Document, print_answer, print_hint, styled
from seamark.cli.store_argument import load, opened_store
from seamark.errors import CheckpointNotFoundError, DamageError, StoreUnavailableError
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.validation import Evidence, weakest


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
                f"again, or see 'seamark doctor {store}'.",
            ) from error
    print_answer(document, lambda clean: _show(clean, store))


def explain_walk(store: CheckpointStore) -> Document:
    """What ``seamark recover --explain --json`` prints."""
    return until_settled(lambda: _explained(store), store.url)


def _explained(store: CheckpointStore) -> Document:
    """:class:`Overtaken` when the chosen checkpoint is pruned before it was described."""
    walk = store.recover_latest_validated()
    outcome = "chosen" if walk.chosen_id is not None else "nothing usable"
    if walk.begins_anew:
        outcome = "fresh start"
    document: Document = {
        "store": store.url,
        "outcome": outcome,
        "chosen": None,
        "skipped": [
            {"id": number, "reason": why, "superseded": number in walk.superseded}
            for number, why in walk.skipped
        ],
        "examined": walk.examined,
        "seconds": round(walk.elapsed, 3),
        "warnings": list(walk.warnings),
        "exit_code": DamageError.exit_code if outcome == "nothing usable" else 0,
    }
    if walk.chosen_id is not None:
        try:
            document["chosen"] = _chosen(store, walk.chosen_id)
        except CheckpointNotFoundError:
            raise Overtaken from None
    return document


def _chosen(store: CheckpointStore, checkpoint_id: int) -> Document:
    manifest = load(store, checkpoint_id)
    chain, _ = chain_of(store, manifest)
    operators = operators_of(store, chain)
    sink_statuses = sinks(manifest)
    return {
        "id": checkpoint_id,
        "epoch": manifest.epoch,
        "timestamp_ms": manifest.timestamp_ms,
        "builds_on": [m.checkpoint_id for m in chain[1:]],
        "files": sum(len(about.files) for about in operators.values()),
        "state_bytes": sum(about.stored_bytes for about in operators.values()),
        "evidence": weakest(chain).value,
        "manifest_sealed": manifest.is_ours,
        "of_pipeline": manifest.attempt is not None,
        "fork": fork_document(manifest),
        "offsets": positions(manifest.source_offsets),
        "sinks": {name: about["status"] for name, about in sink_statuses.items()},
        "commits_again": [
            n for n, about in sink_statuses.items() if about["status"] not in _FINISHED
        ],
    }


_FINISHED = ("Committed", None)
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
        print_hint(f"All that is damaged:  seamark verify {url} --read-data")


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
