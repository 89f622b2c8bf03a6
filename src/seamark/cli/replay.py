"""``seamark replay``: run epochs again and compare their rows with what they wrote."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from seamark._common.text import grouped, ranges_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import Cell, or_dash, print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, progress_bar, styled
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError, DamageError, SeamarkError

if TYPE_CHECKING:
    from seamark.pipeline.replay.replayer import EpochOutcome, Replayer
    from seamark.pipeline.replay.result import Replay
    from seamark.spark.row_digests import RowDigest
    from seamark.store import CheckpointStore

_EPOCHS: Final = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)
_DIGITS: Final = 12


def epoch_range(_: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    """The first and last of ``7`` or ``3..7``; for a click callback."""
    match = _EPOCHS.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no epoch, nor A..B like 3..7")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise click.BadParameter(f"{text!r} ends before it begins")
    return first, last


@click.command("replay", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("epochs", metavar="EPOCHS", callback=epoch_range)
@click.option(
    "--with",
    "job",
    required=True,
    metavar="JOB.PY[:NAME]",
    help="The program that declares the pipeline. It is run.",
)
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Only this output.")
def command(store: str, epochs: tuple[int, int], job: str, outputs: tuple[str, ...]) -> None:
    """Run epochs again, and compare their rows.

    They are compared with the digests of what each epoch wrote. An epoch reads the rows that it was
    planned for, on the state that there was. No sink is called, and nothing in the store is
    changed; a running pipeline is not disturbed. JOB.PY is a program that declares the pipeline as
    'pipeline' (or NAME), or has a function of that name that takes a Spark session and returns the
    pipeline. The program is run with your rights, except for what is below
    'if __name__ == "__main__":'.
    """
    with opened_store(store) as opened:
        document: Document = {
            "store": opened.url,
            "epochs": run_again(opened, job, epochs, outputs),
        }
    if code := exit_code(document["epochs"]):
        document["exit_code"] = code
    print_answer(document, _show)


def run_again(
    store: CheckpointStore,
    job: str,
    epochs: tuple[int, int] | None = None,
    outputs: Collection[str] = (),
) -> list[Document]:
    """What running epochs again has shown, all without ``epochs``; ``job`` names the program.

    One single epoch that cannot be run is an error.
    """
    from seamark.pipeline.job_file import load_pipeline
    from seamark.spark.own_session import a_session

    documents = []
    # what a program prints is for people; the standard output is for the answer
    with redirect_stdout(sys.stderr):
        replayer = load_pipeline(job, partial(a_session, imports_from_here=True)).replayer(store)
        numbers = _numbers(replayer, epochs)
        with progress_bar("running again", len(numbers)) as advance:
            for outcome in replayer.each(numbers, outputs or None):
                if outcome.error is not None and epochs is not None and epochs[0] == epochs[1]:
                    raise outcome.error
                documents.append(outcome_document(outcome))
                advance(1)
    return documents


def _numbers(replayer: Replayer, epochs: tuple[int, int] | None) -> list[int]:
    if epochs is None:
        return list(replayer.epochs)
    first, last = epochs
    if first == last:
        return [first]
    numbers = [epoch for epoch in replayer.epochs if first <= epoch <= last]
    if not numbers:
        known = ranges_text(replayer.epochs) or "none"
        raise CheckpointNotFoundError(
            f"the store has none of the epochs {first} to {last}", hint=f"It has: {known}."
        )
    return numbers


def outcome_document(outcome: EpochOutcome) -> Document:
    """What running one epoch again has shown."""
    if outcome.replay is None:
        error = outcome.error
        return {
            "epoch": outcome.epoch,
            "result": "not run",
            "why": "" if error is None else ": ".join(filter(None, (error.what, error.where))),
            "exit_code": 0 if error is None or _was_expected(error) else error.exit_code,
        }
    return {"epoch": outcome.epoch, **_replay_document(outcome.replay)}


def _was_expected(error: SeamarkError) -> bool:
    """Whether it only says that the store has not kept enough, which is no failure of a range."""
    return isinstance(error, CheckpointNotFoundError)


def _replay_document(again: Replay) -> Document:
    equal = {True: "equal", False: "differs", None: "not compared"}
    return {
        "checkpoint": again.checkpoint_id,
        "result": equal[again.is_equal],
        "outputs": [
            {
                "name": name,
                "rows": _of(each.replayed)[0],
                "digest": _of(each.replayed)[1],
                "recorded_rows": _of(each.recorded)[0],
                "recorded_digest": _of(each.recorded)[1],
                "result": each.agreement.value,
                "why": list(each.reasons),
            }
            for name, each in again.comparisons.items()
        ],
        "state": equal[again.state.is_equal],
        "state_differs_in": list(again.state.differing),
        "changes": list(again.changes),
        "notes": list(again.notes),
    }


def _of(digest: RowDigest | None) -> tuple[int | None, str | None]:
    return (None, None) if digest is None else (digest.rows, digest.digest)


def exit_code(epochs: list[Document]) -> int:
    """3 when rows differ from what an epoch wrote; else that of the first error, or 0."""
    if any(each["result"] == "differs" for each in epochs):
        return DamageError.exit_code
    return next((each["exit_code"] for each in epochs if each.get("exit_code")), 0)


def _show(document: Document) -> None:
    show_epochs(document["epochs"])


def show_epochs(epochs: Sequence[Document]) -> None:
    """Print what running epochs again has shown."""
    rows, notes = [], []
    for epoch in epochs:
        for row, note in replay_rows(epoch):
            rows.append(row)
            notes.append(note)
    print_rows(
        ("EPOCH", "OUTPUT", "ROWS", "DIGEST", "RESULT"), rows, right="EPOCH ROWS", notes=notes
    )
    results = [epoch["result"] for epoch in epochs]
    counted = [f"{results.count(word)} {word}" for word in dict.fromkeys(results)]
    print_paragraph(f"{' · '.join(counted)}. Nothing was changed.", gap=True)


def replay_rows(epoch: Document) -> Iterator[tuple[list[Cell], str]]:
    """The rows of a table for one epoch, each with its note."""
    number = str(epoch["epoch"])
    if epoch["result"] == "not run":
        yield [number, "–", "–", "–", styled("not run")], epoch["why"]
        return
    for output in epoch["outputs"]:
        digest = or_dash(output["digest"], lambda text: text[:_DIGITS])
        row: list[Cell] = [number, output["name"], or_dash(output["rows"], grouped), digest]
        yield [*row, styled(output["result"])], _note(output, epoch)
        number = ""
    if epoch["state"] == "differs":
        files = epoch["state_differs_in"]
        yield (
            ["", "(state)", "–", "–", styled("differs")],
            f"other changes than in the checkpoint: {files[0]} and {len(files) - 1} more"
            if files[1:]
            else f"other changes than in the checkpoint: {files[0]}",
        )


def _note(output: Document, epoch: Document) -> str:
    texts = list(output["why"])
    if output["result"] == "differs":
        recorded = f"the epoch wrote {grouped(output['recorded_rows'])} rows"
        texts.insert(0, f"{recorded}, {output['recorded_digest'][:_DIGITS]}")
    elif output["result"] == "equal" and epoch["changes"]:
        texts.append("the pipeline has changed, and gives the same rows")
    return "; ".join(texts)
