"""``seamark audit``: every sink shows exactly the rows that its epochs have written, or not.

Tests: ``tests/cli/test_audit.py``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby

import click

from seamark._common.text import grouped, shortened
from seamark.audit.auditing import Access, Audit, SinkAudit, audit, worst
from seamark.audit.verdicts import Result
from seamark.cli.commands import PLACE, Command, named_values, number_range, settings
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint, progress_bar, styled
from seamark.cli.replay import exit_code, run_again, show_epochs
from seamark.cli.store_argument import opened_store
from seamark.errors import DamageError
from seamark.limits import LONGEST_PREFIX
from seamark.spark.own_session import a_session
from seamark.spark.source_gaps import gap_texts


@click.command("audit", cls=Command)
@click.argument("store", type=PLACE)
@click.option("--epochs", metavar="A..B", callback=number_range, help="Only these epochs.")
@click.option("--sink", "sinks", multiple=True, help="Only this sink. Repeatable.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="SINK=URL",
    callback=named_values,
    help="Where to find what a sink has written: the address of a PostgreSQL database, a "
    "folder on HDFS, or the place that a target was moved to. Repeatable.",
)
@click.option(
    "--replay",
    "job",
    metavar="JOB.PY[:NAME]",
    help="Also run the epochs again, by the pipeline that this program declares. It is run.",
)
def command(
    store: str,
    epochs: tuple[int, int] | None,
    sinks: tuple[str, ...],
    targets: dict[str, str],
    job: str | None,
) -> None:
    """Check that the sinks show what the pipeline wrote.

    Reads the rows back and compares them with the number of rows and the digest that each
    checkpoint has of them. Names sinks and epochs with rows that are lost, doubled or edited, and
    checkpoints that were changed after they were decided. A local Spark reads the rows. Nothing is
    written, so a pipeline may be running. The exit code is 3 when something was found.
    """
    access = Access(targets=targets, storage_options=settings().storage_options)
    with opened_store(store) as opened:
        with progress_bar("Auditing", None) as advance:
            found = audit(
                opened, a_session, sinks=sinks, epochs=epochs, access=access, progress=advance
            )
        document = _document(found)
        if job is not None:
            document["replayed"] = run_again(opened, job, epochs, sinks)
            document["exit_code"] = document["exit_code"] or exit_code(document["replayed"])
    print_answer(document, lambda clean: _show(clean, store))


def _document(found: Audit) -> Document:
    return {
        "store": found.store,
        "epoch": found.epoch,
        "sinks": [_sink(each) for each in found.sinks],
        "changed_checkpoints": [
            {"id": number, "finding": text} for number, text in found.chain.items()
        ],
        "gaps": gap_texts(found.gaps),
        "damaged": found.is_damaged,
        "exit_code": DamageError.exit_code if found.is_damaged else 0,
    }


def _sink(found: SinkAudit) -> Document:
    return {
        "name": found.sink,
        "kind": found.kind,
        "target": found.target,
        "result": worst(found.verdicts).value,
        "epochs": [
            {
                "first": verdict.first,
                "last": verdict.last,
                "result": verdict.result.value,
                "expected_rows": verdict.expected_rows,
                "found_rows": verdict.found_rows,
                "text": verdict.text,
            }
            for verdict in found.verdicts
        ],
    }


def _show(document: Document, url: str) -> None:
    lines = [
        (shortened(one["name"], LONGEST_PREFIX), shortened(one["kind"], LONGEST_PREFIX), line)
        for one in document["sinks"]
        for line in _lines(one["epochs"])
    ]
    if not lines:
        print_paragraph("The newest checkpoint names no sink.")
    else:
        print_rows(
            ("SINK", "KIND", "EPOCHS", "ROWS", "RESULT"),
            [
                (name, kind, line["epochs"], line["rows"], styled(line["result"]))
                for name, kind, line in lines
            ],
            right="ROWS",
            notes=[line["text"] for _, _, line in lines],
        )
    for changed in document["changed_checkpoints"]:
        print_paragraph(f"damaged: checkpoint {changed['id']}: {changed['finding']}")
    for text in document["gaps"]:
        print_paragraph(f"note: {text}")
    if "replayed" in document:
        print_paragraph("Run again:", gap=True)
        show_epochs(document["replayed"])
    print_paragraph(_summary(document))
    if document["damaged"]:
        print_hint(f"What a start would do:  seamark recover {shlex.quote(url)} --explain")


def _lines(epochs: Sequence[Document]) -> list[Document]:
    """A line for each finding, and one for what lies between two of them."""
    lines = []
    for (result, text), group in groupby(epochs, key=lambda each: (each["result"], each["text"])):
        several = list(group)
        apart = several if result not in (Result.OK, Result.UNCOMPARED) else [None]
        for each in apart:
            members = several if each is None else [each]
            found = rows_found(members)
            lines.append(
                {
                    "epochs": _span(members),
                    "rows": "–" if found is None else grouped(found),
                    "result": result,
                    "text": text,
                }
            )
    return lines


def rows_found(members: Sequence[Document]) -> int | None:
    """How many rows were found in these epochs; None where that is not known.

    A table is compared epoch by epoch and then as a whole: its rows are not counted twice.
    """
    first = min(each["first"] for each in members)
    last = max(each["last"] for each in members)
    whole = [each for each in members if (each["first"], each["last"]) == (first, last)]
    found = [each["found_rows"] for each in whole[-1:] or members]
    return None if None in found else sum(found)


def _span(members: Sequence[Document]) -> str:
    first = min(each["first"] for each in members)
    last = max(each["last"] for each in members)
    if last == 0:
        return "–"
    return str(first) if first == last else f"{first} to {last}"


def _summary(document: Document) -> str:
    sinks = document["sinks"]
    counts = {
        "as written": sum(one["result"] == Result.OK for one in sinks),
        "not compared": sum(one["result"] == Result.UNCOMPARED for one in sinks),
    }
    damaged = len(sinks) - sum(counts.values())
    parts = [f"{number} {word}" for word, number in counts.items() if number]
    parts += [f"{damaged} damaged"] if damaged else []
    return f"{len(sinks)} sinks at epoch {document['epoch']}: {', '.join(parts) or 'none'}"
