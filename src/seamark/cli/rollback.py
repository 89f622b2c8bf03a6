"""``seamark rollback``: show what it means for every sink and, with ``--yes``, do it."""

from __future__ import annotations

from typing import Any, Final

import click

from seamark._common.retry import TRIES
from seamark._common.text import age_text, time_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.removal import force_option, options_needed, refuse_foreign
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.recovery.rollback import RollbackPlan, plan_rollback, roll_back
from seamark.reports.named_checkpoints import LATEST, load, resolve_id
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled


@click.command("rollback", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="ID")
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would happen.")
@force_option
def command(store: str, checkpoint: str, yes: bool, force: bool) -> None:
    """Make an earlier checkpoint the newest one.

    Later checkpoints are given up for good, and a new timeline begins. A pipeline that is still
    running on the store is fenced. Sinks are brought back at the next start of the pipeline. With
    the newest checkpoint nothing is given up, and only a new timeline begins: for a store that was
    copied or brought back from a backup.
    """
    with opened_store(store) as opened:
        plan, known = _planned(opened, checkpoint)
        again = None
        if yes:
            refuse_foreign(opened, force=force)
            number, pipeline = plan.chosen.checkpoint_id, plan.owner.pipeline
            only = known if checkpoint == LATEST or plan.is_newest else None
            again = roll_back(opened, number, pipeline, only=only)
        document = _document(opened.url, plan, again)
        # a rollback takes the store over by itself
        document["needs"] = options_needed(opened, take_over=True, force=force) if not yes else []
    print_answer(document, _show)


def _planned(store: CheckpointStore, text: str) -> tuple[RollbackPlan, list[int]]:
    """What a rollback would do, and what of it was there before the checkpoint was looked up.

    What is saved, pruned or given up meanwhile makes another one the newest.
    """

    def look() -> tuple[RollbackPlan, list[int]]:
        there = store.list_ids()
        number = resolve_id(store, text)
        try:
            plan = plan_rollback(store, load(store, number).checkpoint_id)
        except (CheckpointNotFoundError, RefusedError):
            if resolve_id(store, text) != number:
                raise Overtaken from None
            raise
        return plan, [each for each in plan.given_up if each in there]

    for _ in range(TRIES):
        plan, known = until_settled(look, store.url)
        if text != LATEST or known == plan.given_up:
            break
    return plan, known


def _document(url: str, plan: RollbackPlan, again: CheckpointManifest | None) -> Document:
    chosen, owner = plan.chosen, plan.owner
    return {
        "store": url,
        "id": chosen.checkpoint_id,
        "epoch": chosen.epoch,
        "timestamp_ms": chosen.timestamp_ms,
        "newest_id": plan.newest_id,
        "newest_epoch": plan.newest.epoch if plan.newest else None,
        "given_up": plan.given_up,
        "owner": {
            "generation": owner.generation,
            "writer": owner.writer or None,
            "claimed_at_ms": owner.claimed_at_ms or None,
            "released": owner.released,
            "alive": plan.is_alive,
        },
        "sinks": [
            {
                "name": sink.name,
                "kind": sink.kind,
                "target": sink.target or None,
                "epoch": sink.epoch,
                "action": sink.action,
                "reason": sink.why,
            }
            for sink in plan.sinks
        ],
        "native": chosen.native is not None,
        "done": again is not None,
        "new_id": again.checkpoint_id if again is not None else None,
    }


def _show(document: Document) -> None:
    when = f"{age_text(document['timestamp_ms'])}, {time_text(document['timestamp_ms'])}"
    print_paragraph(f"checkpoint {document['id']} · epoch {document['epoch']} · {when}")
    print_paragraph(_given_up_text(document) if document["given_up"] else _newest_text(document))
    if document["sinks"] and document["given_up"]:
        click.echo()
        print_rows(
            ["SINK", "KIND", "SHOWS", "WHAT HAPPENS"],
            [
                (s["name"], s["kind"], f"epoch {s['epoch']}", f"{s['action']}: {s['reason']}")
                for s in document["sinks"]
            ],
        )
        click.echo()
    if document["native"]:
        print_paragraph(
            "These are snapshots of a directory that Spark keeps by itself. This changes the store "
            "only; the directory is rolled back by 'seamark spark rollback'."
        )
    if owner := _owner_text(document["owner"], done=document["done"]):
        print_paragraph(owner + (_IN_A_FUNCTION if _has_functions(document) else ""))
    if document["done"]:
        print_paragraph(
            f"Rolled back: checkpoint {document['new_id']} repeats checkpoint {document['id']} in "
            "a new timeline. The next start of the pipeline continues from it and brings the sinks "
            "back."
        )
    else:
        print_paragraph("Nothing was changed.")
        print_hint(f"To do it, add {' '.join(document['needs'])}.")


# fencing is seen between two calls of a function, and not inside one
_IN_A_FUNCTION: Final = (
    " A function that it is inside of may still write its epoch, under a key that nothing else "
    "has: see that the process has ended before you bring the targets of functions back."
)


def _has_functions(document: Document) -> bool:
    return any(sink["kind"] == "function" for sink in document["sinks"])


def _newest_text(document: Document) -> str:
    verb = "begins" if document["done"] else "would begin"
    text = f"It is the newest one that counts: nothing is given up, and a new timeline {verb}."
    if _has_functions(document):
        text += (
            " Functions may have been given later epochs: their rows come again under other keys, "
            f"so bring their targets back to epoch {document['epoch']} before the next start."
        )
    return text


def _given_up_text(document: Document) -> str:
    ids = document["given_up"]
    number = len(ids)
    several = f"{number} checkpoints, {ids[0]} to {ids[-1]},"
    which = f"checkpoint {ids[0]}" if number == 1 else several
    verb = ("is" if number == 1 else "are") if document["done"] else "would be"
    later = document["newest_epoch"]
    epochs = f" (up to epoch {later})" if later is not None and later != document["epoch"] else ""
    return f"{which} {verb} given up{epochs}; the pipeline runs again from epoch " + str(
        document["epoch"] + 1
    )


def _owner_text(owner: dict[str, Any], *, done: bool) -> str | None:
    if owner["alive"] is False:
        return None
    who = f"generation {owner['generation']} ({owner['writer']})"
    claimed = age_text(owner["claimed_at_ms"]) if owner["claimed_at_ms"] else "some time ago"
    if owner["alive"] is None:
        state = f"The store was claimed by {who} {claimed} and not given back; if it still runs,"
    else:
        state = f"The store is in use by {who}, claimed {claimed};"
    return f"{state} it {'is' if done else 'would be'} fenced and commits nothing more."
