"""What Spark says when it cannot do something, as one line without its Java.

Tests: ``tests/native/test_repartition.py``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from seamark._redaction import redacted

_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z][A-Z0-9_]+)*)\] ?([^\n]*)")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+): ([^\n]+)", re.MULTILINE)
_CALL: Final = re.compile(r"^An error occurred while calling [^\n]*\n: (?:[\w$]+\.)*")
_ADVICE: Final = re.compile(r" If the stream job is restarted with .*clear the existing .*")
"""Spark's own remedy for state that cannot be read is to throw it away."""
_LONGEST: Final = 400


class SparkFailure(NamedTuple):
    """An error of Spark's."""

    condition: str
    """Its stable name, like ``CANNOT_LOAD_STATE_STORE.UNCATEGORIZED``; empty when it has none."""
    line: str

    def __str__(self) -> str:
        return f"[{self.condition}] {self.line}" if self.condition else self.line


def said_by(error: Exception) -> SparkFailure:
    """The name and the first line of an error of Spark's, with its last cause if it says little."""
    text = redacted(str(error))
    match = _CONDITION.search(text)
    if match is None:
        first = next((line for line in _CALL.sub("", text).splitlines() if line.strip()), "")
        return SparkFailure("", _short(first or type(error).__name__))
    condition, line = match[1], _ADVICE.sub("", _STATE.sub("", match[2])).strip()
    causes = _CAUSE.findall(text)
    if condition.endswith(".UNCATEGORIZED") and causes:
        name, said = causes[-1]
        line = f"{line} {name}: {said}"
    return SparkFailure(condition, _short(line))


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
