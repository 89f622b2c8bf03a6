"""Time windows, as the user wrote them.

In an analysed plan ``window(t, '20 seconds')`` is arithmetic on microseconds. The length, the slide
and the offset are constants of it, at places that have not changed from Spark 4.0 to 4.3. They are
read back.

Tests: ``tests/spark/test_windows.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from seamark.spark.plans.trees import class_name

_SLIDE: Final = re.compile(r"- (?P<offset>-?\d+)L\) % (?P<slide>\d+)L\)")
_LENGTH: Final = re.compile(r"\+ (?P<length>\d+)L\)+$")
_GAP: Final = re.compile(r"'end', .* \+ CAST\('(?P<gap>[^']+)' AS INTERVAL\)( AS \w+)?\)+$")
_UNITS: Final = (
    (604_800_000_000, "weeks"),
    (86_400_000_000, "days"),
    (3_600_000_000, "hours"),
    (60_000_000, "minutes"),
    (1_000_000, "seconds"),
    (1_000, "milliseconds"),
    (1, "microseconds"),
)


def time_column(window: Any) -> Any:
    """The expression that a window was made over: what is converted to microseconds first."""
    node, column = window.children().apply(1), None
    while True:
        if class_name(node) == "PreciseTimestampConversion":
            column = node
        children = node.children()
        if children.isEmpty():
            break
        node = children.head()
    return column.child() if column is not None else window


def time_window(sql: str) -> dict[str, str] | None:
    """Length, slide and offset of a time window, or None when the text is not that of one."""
    if not sql.startswith("named_struct('start', "):
        return None
    slide, length = _SLIDE.search(sql), _LENGTH.search(sql)
    if slide is None or length is None:
        return None
    window = {"length": span(int(length["length"])), "slide": span(int(slide["slide"]))}
    if offset := int(slide["offset"]):
        window["offset"] = span(offset)
    return window


def session_gap(sql: str) -> str | None:
    """The gap of a session window, or None when it is not a constant."""
    if not sql.startswith("named_struct('start', "):
        return None
    match = _GAP.search(sql)
    return None if match is None else match["gap"]


def window_text(parts: Mapping[str, str]) -> str:
    """A time window in one line: ``window(t, length 20 seconds, slide 5 seconds)``."""
    rest = [f"{name} {value}" for name, value in parts.items() if name not in ("window", "of")]
    name = "session_window" if parts.get("window") == "session" else "window"
    return f"{name}({', '.join([parts.get('of', ''), *rest])})"


def span(microseconds: int) -> str:
    """A length of time in the largest unit that divides it: ``90 seconds``, ``1 minute``."""
    if not microseconds:
        return "0 seconds"
    size, unit = next(pair for pair in _UNITS if microseconds % pair[0] == 0)
    count = microseconds // size
    return f"{count} {unit[:-1] if abs(count) == 1 else unit}"
