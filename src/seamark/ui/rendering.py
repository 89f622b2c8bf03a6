"""HTML from templates, and JSON: both without secrets, and whatever a store says is only text.

Tests: ``tests/ui/test_hostile_store.py``.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from seamark._common.text import (
    age_text,
    elapsed_text,
    grouped,
    phase_text,
    plural,
    seconds_text,
    size_text,
    time_text,
)
from seamark._control_characters import escape_controls
from seamark._redaction import DEEPEST, TOO_DEEP, redacted_document
from seamark._version import __version__
from seamark.ui.bounds import LONGEST_TEXT, MOST_CELLS, MOST_MEMBERS, MOST_ROWS

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_LEVELS: Final = 9
_OWN_MEMBERS: Final = 50
_OWN_DEPTH: Final = 5


class Asset:
    """A file of our own that a page needs."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.type = f"{_TYPES[path.suffix]}; charset=utf-8"
        self.tag = f'"{sha256(self.data).hexdigest()[:20]}"'


def assets() -> dict[str, Asset]:
    """All of them, by name; nothing else is ever served as a file."""
    return {
        path.name: Asset(path) for path in (_HERE / "static").iterdir() if path.suffix in _TYPES
    }


class Rendering:
    """Makes answers out of documents. ``redact`` hides the secrets that this process knows."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            size=_or_dash(size_text),
            count=_or_dash(lambda number: grouped(number).replace(" ", "\u00a0")),
            rate=_or_dash(_rate),
            seconds=_or_dash(seconds_text),
            step=_or_dash(phase_text),
            elapsed=_or_dash(elapsed_text),
            exact=_or_dash(time_text),
            ago=_ago,
            dash=lambda value: "–" if value is None else value,
            plural=plural,
            json=_json_text,
            quoted=shlex.quote,
            heat=heat,
            line=line,
            first=lambda items, most=MOST_ROWS: list(items)[:most],
            tree=tree_rows,
        )
        self._environment.globals["version"] = __version__

    def compile_all(self) -> None:
        """Compile every template, so that nobody waits for it who opens the first page."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """A page. All values are made of JSON values; secrets are hidden in all of them.

        What is more than a page has room for is left out; the JSON has all of it.
        """
        clean = redacted_document(bounded(dict(context)), self._redact)
        return self._environment.get_template(template).render(clean)

    def json(self, document: object) -> bytes:
        """A document in ASCII and without tags, so that nothing obeys what it holds."""
        clean = redacted_document(document, self._redact)
        return json.dumps(clean).replace("<", "\\u003c").encode()


def bounded(document: Any) -> Any:
    """A document with as many members and as long texts as a page has room for.

    Small containers near the top stay whole: those are our own, and templates rely on them.
    """
    left = MOST_MEMBERS

    def cut(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if isinstance(value, str):
            return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…"
        if not isinstance(value, Mapping | list | tuple):
            return value
        if depth >= DEEPEST:
            return TOO_DEEP
        is_own = len(value) <= _OWN_MEMBERS and depth <= _OWN_DEPTH
        most = len(value) if is_own else min(max(left, 0), MOST_CELLS)
        if isinstance(value, Mapping):
            members = islice(value.items(), most)
            return {str(name)[:LONGEST_TEXT]: cut(member, depth + 1) for name, member in members}
        return [cut(item, depth + 1) for item in islice(value, most)]

    return cut(document, 0)


def _visible(value: object) -> object:
    """Text with the characters made visible that would turn or hide other text."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape_controls(value)
    return value


def _rate(value: float) -> str:
    """A number of things a second: ``0.4``, ``1 200``."""
    return f"{value:g}" if value < 10 else grouped(round(value)).replace(" ", "\u00a0")


def _or_dash(text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "–" if value is None else text(value)


def _ago(timestamp_ms: int | None) -> Markup | str:
    """How long ago, with the exact time on demand; the script keeps it right."""
    if timestamp_ms is None:
        return "–"
    try:
        machine = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return time_text(timestamp_ms)
    return Markup('<time datetime="{}" data-ms="{}" title="{}">{}</time>').format(
        machine, int(timestamp_ms), time_text(timestamp_ms), age_text(timestamp_ms, time.time())
    )


def _json_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def heat(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Partitions as cells with a level from 0 to 9, and in words how uneven they are."""
    values = {name: size for name, size in sizes.items() if isinstance(size, int)}
    most = max(values.values(), default=0)
    mean = sum(values.values()) / len(values) if values else 0.0
    largest = max(values, key=lambda name: values[name], default=None)
    full = max(most, 2 * mean)  # so that even ones are of a middling colour
    cells = [
        {"name": name, "size": size, "level": round(_LEVELS * size / full) if most else 0}
        for name, size in list(values.items())[:MOST_CELLS]
    ]
    return {
        "cells": cells,
        "total": len(values),
        "largest": largest,
        "largest_size": most,
        "skew": round(most / mean, 1) if mean else None,
        "empty": sum(size == 0 for size in values.values()),
    }


def line(values: list[float], width: int = 120, height: int = 28) -> str:
    """The points of a small line, the newest to the right."""
    if len(values) < 2:
        return ""
    most = max(values) or 1.0
    step = width / (len(values) - 1)
    return " ".join(
        f"{n * step:.1f},{height - 2 - (height - 4) * value / most:.1f}"
        for n, value in enumerate(values)
    )


def tree_rows(value: object) -> list[dict[str, Any]]:
    """A nested value as rows with their depth, bounded in depth and number."""
    rows = _rows("", value, 0)
    return [row for row, _ in zip(rows, range(MOST_ROWS), strict=False)]


def _rows(name: str, value: object, depth: int) -> Iterator[dict[str, Any]]:
    is_deep = depth >= 12
    if isinstance(value, Mapping) and value and not is_deep:
        if name:
            yield {"name": name, "depth": depth, "value": None}
        for key, member in value.items():
            yield from _rows(str(key), member, depth + bool(name))
    elif (
        isinstance(value, list)
        and value
        and not is_deep
        and any(isinstance(item, Mapping | list) for item in value)
    ):
        if name:
            yield {"name": name, "depth": depth, "value": None}
        for number, item in enumerate(value, 1):
            yield from _rows(str(number), item, depth + bool(name))
    elif isinstance(value, list) and not is_deep:
        yield {"name": name, "depth": depth, "value": ", ".join(map(_json_text, value)) or "none"}
    else:
        yield {"name": name, "depth": depth, "value": "none" if value == {} else _json_text(value)}
