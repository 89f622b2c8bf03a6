"""The standard streams of a command: what is printed, and the log lines on stderr.

There may be no stream, it may be full, or not take a character. None of that changes what a command
has done, nor its exit code when it has failed. Names and messages come from stores that anybody may
have written: an escape sequence in one of them must not colour, move or erase anything on the
screen of the person who looks at it.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from seamark._control_characters import escape_controls
from seamark._redaction import storage_option_redactor

_STANDARD: Final = 2  # the highest of their descriptors


def prepare_streams() -> None:
    """Have both streams there, and have them write '?' for what their encoding does not know."""
    if sys.stdout is None or sys.stderr is None:
        _occupy()
    # for a closed stream, Python has None
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _occupy() -> None:
    """Keep a file that is opened later from getting the number of a standard stream."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= _STANDARD:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def discard_stdout() -> None:
    """Send what is still to be written nowhere; the interpreter would complain at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def is_printing_error(error: OSError) -> bool:
    """Whether an error comes from what prints, by the module that was the last to run."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""
    return module == __name__ or module.partition(".")[0] in ("click", "rich")


def stdout_error() -> OSError | None:
    """Why what was printed cannot be written, or None when it can."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return error
    return None


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
