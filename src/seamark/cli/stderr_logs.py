"""The log lines of a command: on stderr, and without the values of storage options.

Tests: ``tests/cli/test_frame.py``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from seamark._redaction import storage_option_redactor
from seamark.cli.control_characters import escape_controls


class _Lines(logging.Handler):
    """Writes ``warning: …`` to whatever stderr is now."""

    def __init__(self) -> None:
        super().__init__()
        self.options: Mapping[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; what cannot be written is given up, as logging does."""
        try:
            line = f"{record.levelname.lower()}: {self.format(record)}"
            text = escape_controls(storage_option_redactor(self.options)(line), lines=True)
            # a second line never looks like one of its own
            sys.stderr.write(text.replace("\n", "\n  ") + "\n")
        except Exception:  # noqa: BLE001 - logging reports it in its own way
            self.handleError(record)


_lines: Final = _Lines()


def hide_values(options: Mapping[str, str]) -> None:
    """Keep these storage options out of every log line from here on."""
    _lines.options = options


@contextmanager
def log_lines() -> Iterator[None]:
    """Have Seamark's log lines shown for as long as a command runs: warnings, unless asked."""
    logger = logging.getLogger("seamark")
    before = logger.level
    hide_values({})
    logger.setLevel(logging.WARNING)
    logger.addHandler(_lines)
    try:
        yield
    finally:
        logger.removeHandler(_lines)
        logger.setLevel(before)
