"""The root command, and the one place where errors become exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from seamark._version import __version__
from seamark.cli.lazy import LazyGroup
from seamark.errors import SeamarkError

COMMANDS = {
    "demo": ("seamark.cli.demo.command", "Kill a running pipeline; no row is lost or doubled."),
    "version": ("seamark.cli.version", "Show the versions of Seamark and what it works with."),
}


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"seamark {__version__}")
        ctx.exit()


app = LazyGroup(
    "seamark",
    table=COMMANDS,
    help="Exactly-once, verifiable, portable checkpoints for PySpark streaming pipelines.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
)
app.context_settings["help_option_names"] = ["-h", "--help"]


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a ``SeamarkError`` becomes its own code."""
    try:
        app.main(args=args, prog_name="seamark")
    except SeamarkError as error:
        from seamark.cli.output import print_error

        sys.stdout.flush()
        print_error(error)
        return error.exit_code
    except SystemExit as end:
        # click ends every command this way, also the good ones
        return end.code if isinstance(end.code, int) else int(end.code is not None)
