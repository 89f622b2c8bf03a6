"""The root command, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import click

from seamark._version import __version__
from seamark.cli.commands import LazyGroup, Settings, settings
from seamark.cli.standard_streams import discard_stdout, log_lines, prepare_streams, stdout_error

COMMANDS: Final = {
    "list": ("seamark.cli.list", "List the checkpoints of a store, newest first."),
    "show": ("seamark.cli.show", "Show everything about one checkpoint."),
    "verify": ("seamark.cli.verify", "Check what is stored, down to every byte if you ask."),
    "audit": ("seamark.cli.audit", "Check that the sinks show what the pipeline wrote."),
    "diff": ("seamark.cli.diff", "Compare two checkpoints."),
    "recover": ("seamark.cli.recover", "Explain which checkpoint a start would choose."),
    "pin": ("seamark.cli.pins", "Keep a checkpoint under a name."),
    "unpin": ("seamark.cli.pins", "Remove a pin."),
    "prune": ("seamark.cli.prune", "Remove checkpoints that a rule does not keep."),
    "gc": ("seamark.cli.prune", "Remove what unfinished writes left behind."),
    "copy": ("seamark.cli.copy", "Copy checkpoints to another store and verify them."),
    "fork": ("seamark.cli.fork", "Begin a new store at a checkpoint of another one."),
    "compare": ("seamark.cli.compare", "Show where the outputs of two stores differ."),
    "rollback": ("seamark.cli.rollback", "Make an earlier checkpoint the newest one."),
    "bisect": ("seamark.cli.bisect", "Find the first epoch for which a test fails."),
    "replay": ("seamark.cli.replay", "Run epochs again, and compare their rows."),
    "cut": ("seamark.cli.cut", "Show what to read of each sink to see one epoch."),
    "doctor": ("seamark.cli.doctor", "Check whether a store can be relied on."),
    "estimate": ("seamark.cli.estimate", "Tell what state costs in bytes, requests and seconds."),
    "sources": ("seamark.cli.sources", "Show how far the sources of a pipeline have been read."),
    "ui": ("seamark.cli.ui", "Show stores and checkpoint directories in a browser."),
    "spark": ("seamark.cli.spark", "Work on the checkpoint directory of any Spark query."),
    "demo": ("seamark.cli.demo.command", "Kill a running pipeline; no row is lost or duplicated."),
    "version": ("seamark.cli.version", "Show the versions of Seamark and its dependencies."),
}

INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141


app = LazyGroup(
    "seamark",
    table=COMMANDS,
    help="Exactly-once, verifiable, portable checkpoints for PySpark streaming pipelines.",
)
click.version_option(__version__, message="seamark %(version)s", help="Show the version and exit.")(
    app
)
app.params.insert(0, app.params.pop())  # the first one in the help
app.context_settings["help_option_names"] = ["-h", "--help"]


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a ``SeamarkError`` becomes its own code."""
    arguments = list(sys.argv[1:] if args is None else args)
    if args is None and "_SEAMARK_COMPLETE" in os.environ:
        app.main(arguments, prog_name="seamark")  # a shell asks for completions
    prepare_streams()
    try:
        with log_lines():
            code = _run(arguments)
        lost = stdout_error()
        return code if lost is None else _tell(lost, Settings())
    except KeyboardInterrupt:
        with suppress(OSError):
            click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        discard_stdout()  # the reader has closed the pipe: it has seen enough
        return _PIPE_CLOSED


def _run(arguments: list[str]) -> int:
    asked = Settings()
    try:
        with app.make_context("seamark", list(arguments)) as context:
            try:
                app.invoke(context)
            finally:
                asked = settings()
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        from seamark.cli.error_report import report_usage_error

        # the mistake may come before --json on the command line
        before = arguments[: arguments.index("--")] if "--" in arguments else arguments
        return report_usage_error(
            error, replace(asked, as_json=asked.as_json or "--json" in before)
        )
    except click.Abort:
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - reported, with its trace on request
        return _tell(error, asked)


def _tell(error: Exception, asked: Settings) -> int:
    from seamark.cli.error_report import report_error

    return report_error(error, asked)
