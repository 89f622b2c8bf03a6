"""How an error of a command is told: one paragraph, and nothing secret at any level."""

from __future__ import annotations

import json
import sys
import traceback

from seamark.cli.logs import redactor
from seamark.cli.output import error_lines, print_lines
from seamark.cli.settings import Settings
from seamark.errors import SeamarkError


def tell(error: Exception, asked: Settings) -> int:
    """Print an error to stderr, as JSON when that was asked for; its exit code."""
    sys.stdout.flush()
    redact = redactor(asked.storage_options)
    if asked.verbosity > 1:
        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    told = error if isinstance(error, SeamarkError) else _unexpected(error)
    parts = [redact(part) if part else None for part in (told.what, told.where, told.hint)]
    shown = type(told)(parts[0] or "", where=parts[1], hint=parts[2])
    if asked.as_json:
        sys.stderr.write(json.dumps({"error": _document(shown)}) + "\n")
    else:
        print_lines(error_lines(shown))
    return told.exit_code


def _document(error: SeamarkError) -> dict[str, object]:
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def _unexpected(error: Exception) -> SeamarkError:
    return SeamarkError(
        f"this should not have happened: {type(error).__name__}: {error}",
        hint="It is a fault of Seamark itself. The same command with -vv shows where; please "
        "report that.",
    )
