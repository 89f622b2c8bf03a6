"""How an error of a command is told: one paragraph, and nothing secret at any level."""

from __future__ import annotations

import io
import json
import sys
import traceback
from contextlib import suppress

import click

from seamark._common.os_errors import system_refusal
from seamark.cli.logs import redactor
from seamark.cli.output import error_lines, print_lines
from seamark.cli.settings import Settings
from seamark.cli.streams import fault_of_stdout, give_up_stdout, is_of_printing
from seamark.cli.visible import visible
from seamark.errors import SeamarkError


def tell(error: Exception, asked: Settings) -> int:
    """Print an error to stderr, as JSON when that was asked for; its exit code.

    The code is the same when stderr cannot be written to.
    """
    is_lost = isinstance(error, OSError) and is_of_printing(error)
    if fault_of_stdout() is not None or is_lost:
        give_up_stdout()
    if isinstance(error, OSError) and is_lost:
        error = _output_lost(error)
    redact = redactor(asked.storage_options)
    told = error if isinstance(error, SeamarkError) else _other(error)
    parts = [redact(part) if part else None for part in (told.what, told.where, told.hint)]
    shown = type(told)(parts[0] or "", where=parts[1], hint=parts[2])
    with suppress(OSError):
        if asked.verbosity > 1:
            trace = redact("".join(traceback.format_exception(error)))
            sys.stderr.write(visible(trace, lines=True))
        if asked.as_json:
            sys.stderr.write(json.dumps({"error": _document(shown)}) + "\n")
        else:
            print_lines(error_lines(shown))
    return told.exit_code


def tell_usage(error: click.ClickException, asked: Settings) -> int:
    """Say what is wrong with a command line, but none of the secrets in it; the exit code."""
    redact = redactor(asked.storage_options)
    with suppress(OSError):
        if asked.as_json:
            document = {
                "kind": type(error).__name__,
                "what": redact(error.format_message()),
                "where": None,
                "hint": None,
                "exit_code": error.exit_code,
            }
            sys.stderr.write(json.dumps({"error": document}) + "\n")
        else:
            said = io.StringIO()
            error.show(said)
            sys.stderr.write(visible(redact(said.getvalue()), lines=True))
    return error.exit_code


def _output_lost(error: OSError) -> SeamarkError:
    return SeamarkError(
        f"what was to be printed could not be written: {error.strerror}",
        hint="That is no fault of the store. What the command was to change may have been changed.",
    )


def _document(error: SeamarkError) -> dict[str, object]:
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def _other(error: Exception) -> SeamarkError:
    """What no module has told: a disk that is full or read-only, or a fault of our own."""
    return (isinstance(error, OSError) and system_refusal(error)) or _unexpected(error)


def _unexpected(error: Exception) -> SeamarkError:
    return SeamarkError(
        f"this should not have happened: {type(error).__name__}: {error}",
        hint="It is a fault of Seamark itself. The same command with -vv shows where; please "
        "report that.",
    )
