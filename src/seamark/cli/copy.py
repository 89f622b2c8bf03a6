"""``seamark copy``: copy checkpoints from one store to another and verify them."""

from __future__ import annotations

import shlex

import click

from seamark._common.retry import TRIES
from seamark._common.text import size_text
from seamark.cli.commands import PLACE, Command, named_values, settings
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint, progress_bar, styled
from seamark.cli.store_argument import opened_store
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.reports.named_checkpoints import LATEST, resolve_id
from seamark.reports.places import local_path
from seamark.store import CheckpointStore, open_store
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.copy.plan import CopyPlan, CopyResult, plan_copy
from seamark.store.copy.run import SourceRolledBack, copy_checkpoints, take_over_target
from seamark.store.owner import Standing, standing


@click.command("copy", cls=Command)
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.argument("checkpoint", metavar="[ID]", required=False)
@click.option("--pins", is_flag=True, help="Copy the pins of these checkpoints too.")
@click.option(
    "--to-storage-option",
    "to_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="Like --storage-option, for the target. Default: the same options as the source.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Copy even if a writer may be using TARGET. This stops that writer.",
)
def command(
    source: str,
    target: str,
    checkpoint: str | None,
    pins: bool,
    to_options: dict[str, str],
    take_over: bool,
) -> None:
    """Copy checkpoints to another store and verify them.

    Copies all current checkpoints, or with ID that one and those it builds on. They keep their ids.
    If the copy is interrupted, run the same command again to finish it. A pipeline that is started
    on TARGET continues from there.
    """
    with opened_store(source) as here, open_target(target, to_options) as there:
        if take_over:
            chosen = resolve_id(here, checkpoint) if checkpoint is not None else None
            take_over_target(here, there, chosen)
        plan, results = _copied_of_one_history(here, there, checkpoint, pins=pins)
        document = _document(here, there, plan, results)
    print_answer(document, lambda clean: _show(clean, source, target))
    if any(copied.outcome == "damaged" for copied in results):
        raise click.exceptions.Exit(DamageError.exit_code)


def _copied_of_one_history(
    source: CheckpointStore, target: CheckpointStore, checkpoint: str | None, *, pins: bool
) -> tuple[CopyPlan, list[CopyResult]]:
    """Copied again when the source is rolled back meanwhile, unless an ID names what to copy.

    :class:`SourceRolledBack` when that does not help: what the target holds is to be told.
    """
    rolled_back: SourceRolledBack | None = None
    for _ in range(TRIES):
        try:
            return until_settled(lambda: _copied(source, target, checkpoint, pins=pins), source.url)
        except SourceRolledBack as error:
            rolled_back = error
            if checkpoint not in (None, LATEST):
                break
        except SeamarkError:
            if rolled_back is None:
                raise
            break
    assert rolled_back is not None
    raise rolled_back


def _copied(
    source: CheckpointStore, target: CheckpointStore, checkpoint: str | None, *, pins: bool
) -> tuple[CopyPlan, list[CopyResult]]:
    """:class:`Overtaken` when the newest is pruned or given up before it is copied.

    Then another one is the newest.
    """
    checkpoint_id = resolve_id(source, checkpoint) if checkpoint is not None else None
    try:
        plan = plan_copy(source, target, checkpoint_id, pins=pins)
    except CheckpointNotFoundError:
        if checkpoint != LATEST:
            raise
        raise Overtaken from None
    except RefusedError:
        if checkpoint != LATEST or _still_counts(source, checkpoint_id):
            raise
        raise Overtaken from None
    with progress_bar("copying", plan.size, of_bytes=True) as advance:
        results = copy_checkpoints(source, target, plan, advance=advance)
    if checkpoint in (None, LATEST) and results and results[-1].outcome == "gone":
        raise Overtaken
    if checkpoint_id is not None:
        _require(checkpoint_id, results, source)
    return plan, results


def _still_counts(source: CheckpointStore, checkpoint_id: int | None) -> bool:
    """Whether it was neither given up since, nor pruned, as what was given up soon is."""
    return standing(source.owner(), checkpoint_id or 0) is Standing.CURRENT


def open_target(url: str, options: dict[str, str]) -> CheckpointStore:
    """The store that something is written to, with options of its own or the common ones."""
    if local_path(url) is not None and options:
        raise InvalidInputError(
            "--to-storage-option means nothing for a directory",
            hint="It is for s3://, gs:// and az:// targets.",
        )
    given = options or settings().storage_options
    return open_store(url, storage_options=given if local_path(url) is None else None)


def _require(checkpoint_id: int, results: list[CopyResult], source: CheckpointStore) -> None:
    """With an ID, anything short of having it is an error."""
    for copied in results:
        if copied.outcome == "damaged":
            raise DamageError(
                f"checkpoint {copied.checkpoint_id} is damaged, so {checkpoint_id} was not copied",
                where=f"{source.url}: {copied.why}",
                hint="Nothing of it is visible in the target. Choose another one.",
            )
        if copied.outcome == "gone":
            raise CheckpointNotFoundError(
                f"checkpoint {copied.checkpoint_id} was pruned while it was being copied",
                where=source.url,
            )
        if copied.outcome == "pruned there" and copied.checkpoint_id == checkpoint_id:
            raise CheckpointNotFoundError(
                f"checkpoint {checkpoint_id} was pruned in the target while it was being copied",
                hint="Copy again, and prune there when that is done.",
            )


def _document(
    source: CheckpointStore, target: CheckpointStore, plan: CopyPlan, results: list[CopyResult]
) -> Document:
    done = [result for result in results if result.outcome == "copied"]
    return {
        "source": source.url,
        "target": target.url,
        "checkpoints": [
            {
                "id": result.checkpoint_id,
                "outcome": result.outcome,
                "bytes": result.size,
                "reason": result.why or None,
                # None if it was not copied
                "verified": plan.items[result.checkpoint_id].has_checksum
                if result.outcome == "copied"
                else None,
            }
            for result in results
        ],
        "copied": len(done),
        "copied_bytes": sum(result.size for result in done),
        "pins": sorted(plan.pins),
        "begun_epochs": plan.begun,
    }


def _proven(rows: list[Document]) -> str:
    without = sum(row["verified"] is False for row in rows)
    if not without:
        return ", verified" if any(row["verified"] for row in rows) else ""
    return f", {without} of them without a checksum to verify {'it' if without == 1 else 'them'} by"


def _show(document: Document, source: str, target: str) -> None:
    rows = document["checkpoints"]
    # what was there already is only counted, so that the output of a nightly copy stays short
    shown = [row for row in rows if row["outcome"] not in ("there already", "pruned there")]
    if shown:
        print_rows(
            ["ID", "OUTCOME", "BYTES"],
            [
                (
                    str(row["id"]),
                    styled(row["outcome"]),
                    size_text(row["bytes"]) if row["bytes"] else "–",
                )
                for row in shown
            ],
            right="ID BYTES",
            notes=[row["reason"] or "" for row in shown],
        )
    counts = [f"{document['copied']} copied ({size_text(document['copied_bytes'])}){_proven(rows)}"]
    for outcome in ("there already", "pruned there", "gone", "damaged"):
        if number := sum(row["outcome"] == outcome for row in rows):
            counts.append(f"{number} {outcome}")
    if document["begun_epochs"]:
        counts = ["the source has no checkpoint yet: the plan of its first epoch is copied"]
    elif not rows:
        counts = ["the source has no checkpoints that count: nothing to copy"]
    print_paragraph(" · ".join(counts))
    if any(row["outcome"] == "damaged" for row in rows):
        print_hint(f"What is damaged was not copied. More:  seamark verify {shlex.quote(source)}")
    elif document["copied"]:
        print_hint(f"See it with:  seamark list {shlex.quote(target)}")
