"""``seamark diff``: what changed between two checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from seamark._common.text import elapsed_text, grouped, size_text, time_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import (
    print_facts,
    print_paragraph,
    print_rows,
    print_section,
    print_warnings,
)
from seamark.cli.output import Document, print_answer
from seamark.cli.store_argument import opened_store
from seamark.reports.checkpoint_document import describe
from seamark.reports.difference import difference
from seamark.reports.named_checkpoints import use_named
from seamark.spark.source_gaps import gap_texts

_LONGEST_VALUE = 40


@click.command("diff", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("a")
@click.argument("b")
def command(store: str, a: str, b: str) -> None:
    """Compare two checkpoints.

    A and B are IDs as for 'seamark show'. Shows what changed from A to B.
    """
    with opened_store(store) as opened:
        before, after = (use_named(opened, i, partial(describe, opened)) for i in (a, b))
    document = difference(before, after)
    print_answer(document, _show)


def _age_text(seconds: float | None) -> str:
    return "–" if seconds is None else elapsed_text(seconds)


def _show(document: Document) -> None:
    seconds = document["milliseconds"] / 1000
    later = f"{elapsed_text(abs(seconds))} {'later' if seconds >= 0 else 'earlier'}"
    print_paragraph(
        f"From checkpoint {document['a']} to {document['b']}: "
        f"{_signed(document['epochs'])} epochs, {later}"
    )
    if document["timeline_changed"]:
        print_paragraph("They are of two timelines: one was rolled back or reset in between.")
    for title, key in (("Sources", "sources"), ("Reference tables", "tables")):
        if document[key]:
            print_paragraph(title, gap=True)
            print_rows(
                ("NAME", "PARTITION", "A", "B", "ADVANCE"),
                [
                    [name, part, _clip(at["a"]), _clip(at["b"]), _change_text(at)]
                    for name, parts in document[key].items()
                    for part, at in parts.items()
                ],
                right="ADVANCE",
            )
    print_section(
        "Rows not read yet",
        ((k, f"{_clip(v['a'])}  →  {_clip(v['b'])}") for k, v in document["lag"].items()),
    )
    print_section(
        "Age of the next row",
        (
            (k, f"{_age_text(v['a'])}  →  {_age_text(v['b'])}")
            for k, v in document["age_seconds"].items()
        ),
    )
    print_warnings(gap_texts(document["gaps"]), gap=True)
    mark = document["watermark"]
    if mark["b"] is not None or mark["a"] is not None:
        times = [time_text(mark[key]) if mark[key] is not None else "none" for key in ("a", "b")]
        print_section("Watermark", zip(("a", "b"), times, strict=True))
        if mark["advance_ms"] is not None:
            print_facts([("advance", _signed_text(mark["advance_ms"] / 1000, elapsed_text))])
    if document["operators"]:
        print_paragraph("State", gap=True)
        print_rows(
            ("OPERATOR", "A", "B", "GROWTH"),
            [
                [name, *map(size_text, (at["a"], at["b"])), _signed_text(at["growth"], size_text)]
                for name, at in document["operators"].items()
            ],
            right="A B GROWTH",
        )
    print_section("Rows written", ((k, grouped(n)) for k, n in document["rows"].items()))
    sinks = {name: _sink_texts(change) for name, change in document["sinks"].items()}
    for title, changes in (("Sinks", sinks), ("Configuration", document["configuration"])):
        print_section(
            title, ((k, f"{_clip(v['a'])}  →  {_clip(v['b'])}") for k, v in changes.items())
        )
    if document["pipeline_hash_changed"] and not document["configuration"]:
        print_paragraph("The configuration's hash differs.", gap=True)


def _sink_texts(change: Document) -> Document:
    return {
        side: f"{at['status'] or 'no status'} at epoch {at['committed_epoch']}" if at else None
        for side, at in change.items()
    }


def _change_text(at: Document) -> str:
    if at["change"] == "changed" and at["advance"] is not None:
        return _signed(at["advance"])
    return str(at["change"])


def _signed(number: int) -> str:
    return f"{number:+d}" if number else "0"


def _signed_text(number: float, text: Callable[[Any], str]) -> str:
    return ("−" if number < 0 else "+" if number else "") + text(abs(number))


def _clip(value: object) -> str:
    text = "–" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
