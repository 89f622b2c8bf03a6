"""The standard streams of a command: there may be none, they may be full, or not take a character.

None of that changes what a command has done, nor its exit code when it has failed.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Final

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
