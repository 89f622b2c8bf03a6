"""How the error of a command is reported: one paragraph, without secrets at any verbosity.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from contextlib import suppress

import click
from rich.cells import cell_len
from rich.text import Text

from seamark import limits
from seamark._common.os_errors import system_refusal
from seamark._common.text import shortened
from seamark._control_characters import escape_controls
from seamark._redaction import storage_option_redactor
from seamark.cli.commands import Settings
from seamark.cli.layout import wrapped
from seamark.cli.output import printable_lines, screen_width, stderr
from seamark.cli.standard_streams import (
    discard_stdout,
    is_printing_error,
    stdout_error,
)
from seamark.errors import SeamarkError


def report_error(error: Exception, asked: Settings) -> int:
    """Print an error to stderr, as JSON if asked for, and return its exit code.

    The exit code is the same when stderr cannot be written to.
    """
    if stdout_error() is not None or (isinstance(error, OSError) and is_printing_error(error)):
        discard_stdout()
    redact = storage_option_redactor(asked.storage_options)
    reported = _translated(error)
    parts = [
        # a secret that is cut off would not look like one any more
        shortened(redact(part), limits.LONGEST_ERROR) if part else None
        for part in (reported.what, reported.where, reported.hint)
    ]
    redacted = type(reported)(parts[0] or "", where=parts[1], hint=parts[2])
    with suppress(OSError):
        if asked.verbosity > 1:
            trace = redact("".join(traceback.format_exception(error)))
            sys.stderr.write(escape_controls(trace, lines=True))
        if asked.as_json:
            _write_json(type(redacted), redacted.what, redacted.where, redacted.hint)
        else:
            print_error(redacted)
    return reported.exit_code


def report_usage_error(error: click.ClickException, asked: Settings) -> int:
    """Print what is wrong with a command line, without the secrets in it; return the exit code."""
    redact = storage_option_redactor(asked.storage_options)
    with suppress(OSError):
        if asked.as_json:
            _write_json(type(error), redact(error.format_message()))
        else:
            message = io.StringIO()
            error.show(message)
            sys.stderr.write(escape_controls(redact(message.getvalue()), lines=True))
    return error.exit_code


def _write_json(
    kind: type[SeamarkError | click.ClickException],
    what: str,
    where: str | None = None,
    hint: str | None = None,
) -> None:
    document = {
        "kind": kind.__name__,
        "what": what,
        "where": where,
        "hint": hint,
        "exit_code": kind.exit_code,
    }
    sys.stderr.write(json.dumps({"error": document}) + "\n")


def _translated(error: Exception) -> SeamarkError:
    """An error as it is reported: also a full or read-only disk, or a fault of our own."""
    if isinstance(error, SeamarkError):
        return error
    if isinstance(error, OSError) and is_printing_error(error):
        return SeamarkError(
            f"the output could not be written: {error.strerror}",
            hint="The store is fine. The command may already have changed it.",
        )
    if (ended := _of_ended_spark(error)) is not None:
        return ended
    return (isinstance(error, OSError) and system_refusal(error)) or SeamarkError(
        f"this should not have happened: {type(error).__name__}: {error}",
        hint="It is a fault of Seamark itself. The same command with -vv shows where; please "
        "report that.",
    )


def _of_ended_spark(error: Exception) -> SeamarkError | None:
    """For an error of the connection to Spark's process, if there is one."""
    connection = sys.modules.get("py4j.protocol")
    if connection is None or not isinstance(error, connection.Py4JNetworkError):
        return None
    from seamark.spark.failures import out_of_memory

    return out_of_memory(str(error))


def error_lines(error: SeamarkError) -> list[str]:
    """Lay out an error: what happened, then where and what to do next, then its exit code.

    Further lines of one part stand deeper, so that a name with line breaks cannot look like a part.
    """
    width = screen_width(stderr())
    lines: list[str] = []
    for part in (error.what or type(error).__name__, error.where, error.hint):
        first, *more = printable_lines(part or "")
        start = "  " if lines else "error: "
        lines += wrapped(first.strip(), width, first=start, more="  ")
        for line in more:
            lines += wrapped(line.strip(), width, first="    ", more="    ")
    code = f"exit code {error.exit_code}"
    if len(lines) > 1 and cell_len(lines[-1]) + 2 + len(code) <= width:
        lines[-1] += code.rjust(width - cell_len(lines[-1]))
    else:
        lines.append(code.rjust(width))
    return lines


def print_error(error: SeamarkError) -> None:
    """Print an error to stderr."""
    first, *rest = error_lines(error)
    label, _, headline = first.partition(" ")
    console = stderr()
    console.print(Text.assemble((label, "bold red"), " ", (headline, "bold")))
    for line in rest:
        console.print(Text(line))
