"""Log lines of a command: on stderr, and with nothing of the storage options in them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_SHORTEST: Final = 4  # hiding shorter values would garble ordinary words
_ORDINARY: Final = frozenset({"true", "false", "none"})


def redactor(options: Mapping[str, str]) -> Callable[[str], str]:
    """What hides the value of every storage option, whatever its name, and any other secret."""
    from seamark.store.secrets import HIDDEN, Redactor

    values = {v for v in options.values() if len(v) >= _SHORTEST and v.lower() not in _ORDINARY}
    by_length = sorted(values, key=len, reverse=True)
    known = Redactor(options)

    def redact(text: str) -> str:
        for value in by_length:
            text = text.replace(value, HIDDEN)
        return known(text)

    return redact


class _Lines(logging.Handler):
    """Writes ``warning: …`` to whatever stderr is now."""

    def __init__(self) -> None:
        super().__init__()
        self.options: Mapping[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; what cannot be written is given up, as logging does."""
        try:
            line = f"{record.levelname.lower()}: {self.format(record)}"
            sys.stderr.write(redactor(self.options)(line) + "\n")
        except Exception:  # noqa: BLE001 - logging's own way of telling
            self.handleError(record)


_lines: Final = _Lines()


def hide(options: Mapping[str, str]) -> None:
    """Keep these storage options out of every log line from here on."""
    _lines.options = options


@contextmanager
def log_lines() -> Iterator[None]:
    """Have Seamark's log lines shown for as long as a command runs: warnings, unless asked."""
    logger = logging.getLogger("seamark")
    before = logger.level
    hide({})
    logger.setLevel(logging.WARNING)
    logger.addHandler(_lines)
    try:
        yield
    finally:
        logger.removeHandler(_lines)
        logger.setLevel(before)
