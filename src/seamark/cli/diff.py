"""``seamark diff``: what changed between two checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from seamark import limits
from seamark._common.text import elapsed_text, grouped, size_text, time_text
from seamark.cli.checkpoint_document import describe
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import (
    print_facts,
    print_paragraph,
    print_rows,
    print_section,
    print_warnings,
)
from seamark.cli.output import Document, print_answer, without_secrets
from seamark.cli.store_argument import opened_store, use_named
from seamark.spark.source_gaps import gap_texts

_LONGEST_VALUE = 40
_DEEPEST = 20
"""Members nested deeper than this are compared as one value."""


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


def difference(before: Document, after: Document) -> Document:
    """What ``seamark diff --json`` prints: the way from one checkpoint to another."""
    old, new = before["watermarks"]["epoch"], after["watermarks"]["epoch"]
    return {
        "store": after["store"],
        "a": before["id"],
        "b": after["id"],
        "epochs": after["epoch"] - before["epoch"],
        "milliseconds": after["timestamp_ms"] - before["timestamp_ms"],
        "timeline_changed": before["timeline"] != after["timeline"],
        "sources": _offsets(before["sources"], after["sources"]),
        "tables": _offsets(before["tables"], after["tables"]),
        "lag": {
            name: {"a": a, "b": b}
            for name in dict.fromkeys([*before["lag"], *after["lag"]])
            for a, b in [[_total(d["lag"].get(name)) for d in (before, after)]]
        },
        "age_seconds": {
            name: {"a": a, "b": b}
            for name in dict.fromkeys([*before["age_seconds"], *after["age_seconds"]])
            for a, b in [[_oldest(d["age_seconds"].get(name)) for d in (before, after)]]
        },
        "gaps": [gap for gap in after["gaps"] if gap not in before["gaps"]],
        "watermark": {"a": old, "b": new, "advance_ms": None if None in (old, new) else new - old},
        "operators": {
            name: {"a": a, "b": b, "growth": b - a}
            for name in dict.fromkeys([*before["operators"], *after["operators"]])
            for a, b in [[d["operators"].get(name, {}).get("bytes", 0) for d in (before, after)]]
        },
        "sinks": _changes(_without_digests(before["sinks"]), _without_digests(after["sinks"])),
        "rows": _rows_written(before["sinks"], after["sinks"]),
        "configuration": _changes(_flat(before["configuration"]), _flat(after["configuration"])),
        "pipeline_hash_changed": before["pipeline_hash"] != after["pipeline_hash"],
        "state_partitions": [before["state_partitions"], after["state_partitions"]],
    }


def _offsets(
    before: Mapping[str, dict[str, str]], after: Mapping[str, dict[str, str]]
) -> dict[str, dict[str, Document]]:
    changes: dict[str, dict[str, Document]] = {}
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, {}), after.get(name, {})
        changes[name] = {
            part: {
                "a": _shown(part, old.get(part)),
                "b": _shown(part, new.get(part)),
                "advance": _advance(old.get(part), new.get(part)),
                "change": _change(old.get(part), new.get(part)),
            }
            for part in dict.fromkeys([*old, *new])
        }
    return changes


def _without_digests(sinks: Document) -> Document:
    """Each epoch has rows of its own: that is no change of a sink."""
    return {
        name: {key: value for key, value in about.items() if key != "digest"}
        for name, about in sinks.items()
    }


def _rows_written(before: Document, after: Document) -> dict[str, int]:
    """How many rows each sink has got from one to the other, where both have counted them."""
    written = {}
    for name in after:
        old, new = (sinks.get(name, {}).get("digest") for sinks in (before, after))
        if old and new and old["since"] == new["since"]:
            written[name] = new["total_rows"] - old["total_rows"]
    return written


def _total(parts: Mapping[str, int] | None) -> int | None:
    return None if parts is None else sum(parts.values())


def _oldest(parts: Mapping[str, float] | None) -> float | None:
    return None if not parts else max(parts.values())


def _age_text(seconds: float | None) -> str:
    return "–" if seconds is None else elapsed_text(seconds)


def _shown(name: str, value: Any) -> Any:
    """The value, or stars if its name suggests a secret; it was compared before."""
    return next(iter(without_secrets({name: value}).values()))


def _change(old: str | None, new: str | None) -> str:
    if old is None or new is None:
        return "new" if old is None else "gone"
    return "same" if old == new else "changed"


def _advance(old: str | None, new: str | None) -> int | None:
    """By how much a position grew; None where positions are no numbers."""
    try:
        return int(new or "") - int(old or "")
    except ValueError:
        return None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Document]:
    names = dict.fromkeys([*before, *after])
    return {
        name: {"a": _shown(name, before.get(name)), "b": _shown(name, after.get(name))}
        for name in names
        if before.get(name) != after.get(name)
    }


def _flat(value: object, path: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested members as one level, so that only what differs is shown."""
    is_short = len(path) <= limits.LONGEST_PREFIX
    if isinstance(value, dict) and (value or not path) and depth < _DEEPEST and is_short:
        return {
            name: inner
            for key, member in value.items()
            for name, inner in _flat(
                member, f"{path}.{key}" if path else str(key), depth + 1
            ).items()
        }
    return {path: value}


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
