"""What changed between two checkpoints, as a plain document.

Tests: ``tests/cli/test_diff.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from seamark import limits
from seamark._redaction import redacted_document
from seamark.reports.document import Document

_DEEPEST: Final = 20
"""Members nested deeper than this are compared as one value."""


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
        "gaps": _new(before["gaps"], after["gaps"]),
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


def _new(before: Iterable[Document], after: Iterable[Document]) -> list[Document]:
    """What is only in the second; each is looked at once, however many there are."""
    known = set(map(_as_text, before))
    return [each for each in after if _as_text(each) not in known]


def _as_text(value: Document) -> str:
    """Equal for equal values; what is nested too deeply to be shown is not compared."""
    return json.dumps(redacted_document(value), sort_keys=True)


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


def _shown(name: str, value: Any) -> Any:
    """The value, or stars if its name suggests a secret; it was compared before."""
    return next(iter(redacted_document({name: value}).values()))


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
