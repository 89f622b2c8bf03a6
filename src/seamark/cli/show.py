"""``seamark show``: everything about one checkpoint."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import click

from seamark._common.text import (
    age_text,
    elapsed_text,
    grouped,
    phase_text,
    seconds_text,
    size_text,
    time_text,
)
from seamark.cli.commands import PLACE, Command, settings
from seamark.cli.layout import (
    Cell,
    plural,
    print_facts,
    print_paragraph,
    print_rows,
    print_section,
    print_warnings,
)
from seamark.cli.output import Document, print_answer, print_hint, styled
from seamark.cli.store_argument import opened_store
from seamark.reports.checkpoint_document import describe
from seamark.reports.named_checkpoints import use_named
from seamark.spark.source_gaps import gap_texts


@click.command("show", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="ID")
def command(store: str, checkpoint: str) -> None:
    """Show everything about one checkpoint.

    ID is a number, the name of a pin, four or more characters of a UUID, or 'latest'.
    """
    with opened_store(store) as opened:
        document = use_named(opened, checkpoint, partial(describe, opened))
    print_answer(document, _show)
    if settings().as_json:
        return
    if any(sink["status"] == "Failed" for sink in document["sinks"].values()):
        print_hint("The next start of the pipeline commits a failed sink again.")
    if document["broken_chain"]:
        print_hint(
            f"Which one would a start choose?  seamark recover {shlex.quote(store)} --explain"
        )
    else:
        words = shlex.join([store, str(document["id"])])
        print_hint(f"Is every byte right?  seamark verify {words} --read-data")


def _show(document: Document) -> None:
    print_paragraph(f"Checkpoint {document['id']} · epoch {document['epoch']}")
    print_facts(_basics(document))
    for title, key in (("Sources", "sources"), ("Reference tables", "tables")):
        print_section(
            title,
            (
                (name, "  ".join(f"{part} = {at[part]}" for part in at) or "at its beginning")
                for name, at in document[key].items()
            ),
        )
    print_section(
        "Not read yet when the epoch was planned", _lags(document["lag"], document["age_seconds"])
    )
    print_section("Watermarks", _watermarks(document["watermarks"]))
    _show_state(document)
    print_section("Sinks", _sinks(document["sinks"]))
    print_section("Phases", ((k, phase_text(took)) for k, took in document["timings"].items()))
    if upgrade := document["upgrade"]:
        print_section(f"Upgraded from checkpoint {upgrade['from']}", _upgraded(upgrade["parts"]))
    print_section("Configuration", _values(document["configuration"]))
    print_section("Taken from a Spark checkpoint directory", _values(document["native"] or {}))
    after = ", replayed first after a restore" if document["native"] else ""
    in_flight = document["inflight"].items()
    print_section("In flight", ((k, f"{plural(n, 'record')}{after}") for k, n in in_flight))
    losses = [*document["may_lose"], *gap_texts(document["gaps"])]
    print_warnings([*losses, *document["warnings"]], gap=True)


def _basics(document: Document) -> Iterator[tuple[str, Cell]]:
    when = document["timestamp_ms"]
    yield "taken", f"{time_text(when)} ({age_text(when)})"
    yield "standing", styled(document["standing"])
    if document["pins"]:
        yield "pinned", ", ".join(document["pins"])
    if document["full"]:
        yield "kind", "full: it builds on no other checkpoint"
    else:
        parents = ", ".join(map(str, document["parents"])) or "nothing that is there"
        yield "kind", f"incremental, builds on {parents}"
    if document["broken_chain"]:
        yield "damaged", styled(f"damaged: {document['broken_chain']}")
    yield from _sizes(document)
    yield from _place_in_engine(document)
    if document["took_seconds"] is not None:
        yield "took", seconds_text(document["took_seconds"])
    for label in ("timeline", "attempt", "generation", "writer", "pipeline_hash"):
        if document[label] is not None:
            yield label.replace("_", " "), str(document[label])
    if not document["written_by_seamark"]:
        yield "writer", "another system: the manifest has no checksum of its own"
    for first, last in document["supersedes"]:
        yield "supersedes", f"{first} to {last}"
    if fork := document["fork"]:
        yield "forked from", f"{fork['url']}@{fork['checkpoint']}, after epoch {fork['epoch']}"


def _upgraded(parts: Iterable[Document]) -> Iterator[tuple[str, Cell]]:
    for part in parts:
        why = f": {part['why']}" if part["why"] else ""
        yield f"{part['what']} {part['name']}", f"{part['becomes']}{why}"


def _sizes(document: Document) -> Iterator[tuple[str, Cell]]:
    yield "size", f"{size_text(document['size_bytes'])} with its manifest"
    if document["referenced_bytes"]:
        yield "refers to", f"{size_text(document['referenced_bytes'])} that was stored before it"
    if document["restore_bytes"] is not None:
        reads = document["restore_reads_bytes"]
        read = "" if reads is None else f", and reads {size_text(reads)} for it"
        yield "a restore writes", f"{size_text(document['restore_bytes'])}{read}"


def _place_in_engine(document: Document) -> Iterator[tuple[str, Cell]]:
    """Spark's batch and state partitions, or what another system has in their place."""
    if document["batch"] is not None:
        yield "batch", f"{document['batch']} of Spark's offset log"
    elif document["wal_position"]:
        yield "wal position", str(document["wal_position"])
    if document["state_partitions"]:
        label = "partitions" if document["written_by_seamark"] else "vnodes"
        yield label, str(document["state_partitions"])


def _lags(
    lags: Mapping[str, Mapping[str, int]], ages: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, Cell]]:
    for name, parts in lags.items():
        known = ages.get(name, {})
        behind = "  ".join(
            f"{part}: {grouped(rows)}"
            + (f" (the next is {elapsed_text(known[part])} old)" if part in known else "")
            for part, rows in parts.items()
            if rows
        )
        yield name, behind or "nothing"


def _watermarks(watermarks: Document) -> Iterator[tuple[str, Cell]]:
    if watermarks["epoch"] is not None:
        yield "this epoch", time_text(watermarks["epoch"])
    if watermarks["next"] is not None and watermarks["epoch"] is not None:
        yield "next epoch", time_text(watermarks["next"])
    for name, mark in watermarks["sources"].items():
        yield f"source {name}", time_text(mark)


def _show_state(document: Document) -> None:
    if not document["operators"]:
        return
    print_paragraph("State", gap=True)
    print_rows(
        ("OPERATOR", "PLACE", "FILES", "NEW", "FULL", "UNPACKED", "PARTITIONS"),
        [
            [
                name,
                about["place"],
                str(about["files"] or "–"),
                size_text(about["new_bytes"]),
                size_text(about["stored_bytes"]),
                size_text(about["bytes"]),
                _partitions(about["partitions"]),
            ]
            for name, about in document["operators"].items()
        ],
        right="FILES NEW FULL UNPACKED",
    )


def _partitions(sizes: Mapping[str, int]) -> str:
    if not sizes:
        return "–"
    if len(sizes) <= 4:
        return ", ".join(f"{number}: {size_text(size)}" for number, size in sizes.items())
    largest = max(sizes, key=lambda number: sizes[number])
    return f"{len(sizes)}, largest {largest}: {size_text(sizes[largest])}"


def _sinks(sinks: Document) -> Iterator[tuple[str, Cell]]:
    for name, about in sinks.items():
        parts = [about["status"] or "no status"]
        parts += [f"({about['message']})"] if about["message"] else []
        parts += [f"at epoch {about['committed_epoch']}"] if about["committed_epoch"] else []
        parts += [f"· {about['guarantee']}"] if about["guarantee"] else []
        parts += [f"· {plural(about['digest']['rows'], 'row')}"] if about["digest"] else []
        yield name, " ".join(parts)


def _values(values: Mapping[str, object]) -> Iterator[tuple[str, Cell]]:
    for name, value in values.items():
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
