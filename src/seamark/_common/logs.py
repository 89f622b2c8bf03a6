"""Loggers that never stop the work that they report on.

Tests: ``tests/pipeline/test_watchers.py``, ``tests/pipeline/test_display.py``.
"""

from __future__ import annotations

import logging
import sys
import traceback

from seamark._control_characters import escape_controls


class _SteadyLogger(logging.Logger):
    """A logger whose handlers and filters may fail: then the record is lost, and nothing else.

    Python's own handlers keep their errors to themselves, others often do not, and an epoch that
    is being saved must not end because a log server cannot be reached.
    """

    def handle(self, record: logging.LogRecord) -> None:
        try:
            _make_visible(record)
            super().handle(record)
        except Exception:  # noqa: BLE001 - whatever a handler raises
            if logging.raiseExceptions and sys.stderr is not None:
                try:
                    print("a log handler failed:", file=sys.stderr)  # noqa: T201
                    traceback.print_exc(file=sys.stderr)
                except (OSError, ValueError):
                    pass  # there is nobody to report it to


def _make_visible(record: logging.LogRecord) -> None:
    """Escape what a terminal would obey, and have no second line look like a record of its own.

    What is logged names things of stores, which anybody may have written.
    """
    said = record.getMessage()
    shown = escape_controls(said, lines=True)
    if "\n" in shown:
        first, *more = shown.split("\n")
        shown = "\n".join([first, *(line if line[:1] == " " else f"  {line}" for line in more)])
    if shown != said:
        record.msg, record.args = shown, ()


def logger_named(name: str) -> logging.Logger:
    """The logger of this name, whose handlers cannot raise into our work."""
    logger = logging.getLogger(name)
    if type(logger) is logging.Logger:  # a class of the user's own is left alone
        logger.__class__ = _SteadyLogger
    return logger
