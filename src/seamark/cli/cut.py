"""``seamark cut``: what to read of each sink to see exactly the epochs up to one.

Tests: ``tests/cli/test_cut.py``.
"""

from __future__ import annotations

from functools import partial

import click
import msgspec

from seamark._common.text import shortened
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph, print_rows, wrapped
from seamark.cli.output import (
    Document,
    print_answer,
    print_hint,
    print_long,
    printable,
    screen_width,
)
from seamark.cli.store_argument import opened_store
from seamark.limits import LONGEST_PREFIX, LONGEST_REASON
from seamark.sinks.consistent_cut import Cut, SinkCut, read_epoch
from seamark.sinks.reader_calls import READERS, summary_of


@click.command("cut", cls=Command)
@click.argument("store", type=PLACE)
@click.option("--epoch", type=click.IntRange(1), help="The epoch; the newest complete one if none.")
@click.option(
    "--for", "reader", type=click.Choice(READERS), help="Print what to type, for this reader."
)
def command(store: str, epoch: int | None, reader: str | None) -> None:
    """Show what to read of each sink to see one epoch.

    That is exactly the epochs up to it, and nothing later. Without --epoch it is the newest epoch
    that all sinks have committed. All sinks that are read as shown here agree with each other.
    Nothing is written, so a pipeline may be running.
    """
    with opened_store(store) as opened:
        cut = read_epoch(opened, epoch if epoch is not None else "latest")
    print_answer(_document(cut), partial(_show_calls, reader) if reader else _show)


def _document(cut: Cut) -> Document:
    return {
        "store": cut.store,
        "checkpoint": cut.checkpoint_id,
        "epoch": cut.epoch,
        "timeline": cut.timeline,
        "timestamp_ms": cut.timestamp_ms,
        "sinks": [_sink(sink) for sink in cut.sinks],
    }


def _sink(sink: SinkCut) -> Document:
    return {
        "name": sink.sink,
        "kind": sink.kind,
        "target": sink.target,
        "guarantee": sink.guarantee,
        "readable": sink.readable,
        "note": sink.note,
        "read_point": None if sink.point is None else msgspec.to_builtins(sink.point),
        "summary": summary_of(sink.point) if sink.point is not None and sink.readable else None,
        "calls": sink.calls,
    }


def _show(document: Document) -> None:
    print_paragraph(f"epoch {document['epoch']}, checkpoint {document['checkpoint']}")
    sinks = document["sinks"]
    if not sinks:
        print_paragraph("The checkpoint names no sink.")
        return
    print_rows(
        ["SINK", "KIND", "TARGET", "READ"],
        [
            (
                shortened(one["name"], LONGEST_PREFIX),
                shortened(one["kind"], LONGEST_PREFIX),
                shortened(one["target"] or "–", LONGEST_REASON),
                shortened(one["summary"] or "cannot be read", LONGEST_REASON),
            )
            for one in sinks
        ],
        notes=[one["note"] for one in sinks],
    )
    readers = [reader for reader in READERS if any(reader in one["calls"] for one in sinks)]
    if readers:
        print_hint(f"--for {'|'.join(readers)} prints what to type.")


def _show_calls(reader: str, document: Document) -> None:
    comment = "--" if reader == "duckdb" else "#"
    for one in document["sinks"]:
        call = one["calls"].get(reader)
        why = one["note"] if call or not one["readable"] else f"{reader} cannot read it"
        about = f"{one['name']}, epoch {document['epoch']}" + (f": {why}" if why else "")
        width = screen_width() - len(comment) - 1
        for line in wrapped(printable(about), width, cut=True):
            print_long(f"{comment} {line}")
        if call:
            print_long(call)
