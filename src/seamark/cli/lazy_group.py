"""A group of commands whose modules are imported when one of them is called, not to list them.

Tests: ``tests/cli/test_app.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from seamark.cli.common_options import common_options


class LazyGroup(click.Group):
    """A click group with a table: command name -> (module, line for the list of commands).

    Each module has its ``click.Command`` under the name ``command``. ``--help`` of the group reads
    the table only. The common options may stand before the command's name.
    """

    def __init__(
        self,
        name: str,
        *,
        table: Mapping[str, tuple[str, str]],
        help: str,  # noqa: A002 - click's own name
        params: list[click.Parameter] | None = None,
    ) -> None:
        super().__init__(name, help=help, params=[*(params or []), *common_options()])
        self.table = dict(table)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in the table's order, which is the order in which one meets them."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command; None when there is no such command."""
        if cmd_name not in self.table:
            return None
        module, _ = self.table[cmd_name]
        command = import_module(module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.command is not a click command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands, also without importing any, and the group's options."""
        names = [
            CompletionItem(name, help=line)
            for name, (_, line) in self.table.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])
