"""What every command is made of: the common options, argument types, and groups that load late.

The common options may stand before or after a command's name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from seamark._common.text import parse_duration
from seamark.cli.standard_streams import hide_values

_KEY: Final = "seamark.settings"


@dataclass(frozen=True)
class Settings:
    """How a command answers, and how it opens what it is pointed at."""

    as_json: bool = False
    quiet: bool = False
    verbosity: int = 0
    storage_options: dict[str, str] = field(default_factory=dict)


def settings() -> Settings:
    """What was asked for on this command line."""
    context = click.get_current_context(silent=True)
    return Settings() if context is None else _of(context)


def _of(context: click.Context) -> Settings:
    current = context.find_root().meta.get(_KEY)
    return current if isinstance(current, Settings) else Settings()


def _change(context: click.Context, **changes: Any) -> None:
    now = replace(_of(context), **changes)
    context.find_root().meta[_KEY] = now
    levels = {0: logging.WARNING, 1: logging.INFO}
    level = logging.ERROR if now.quiet else levels.get(now.verbosity, logging.DEBUG)
    logging.getLogger("seamark").setLevel(level)
    hide_values(now.storage_options)


def _flag(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        _change(context, **{str(parameter.name): True})


def _verbose(context: click.Context, _: click.Parameter, count: int) -> None:
    if count:
        _change(context, verbosity=_of(context).verbosity + count)


def _storage(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    if given:
        options = _of(context).storage_options | named_values(context, parameter, given)
        _change(context, storage_options=options)


def named_values(
    context: click.Context, parameter: click.Parameter, given: Iterable[str]
) -> dict[str, str]:
    """The options of an object store, each given as NAME=VALUE; for a click callback."""
    options = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            # the value may be a secret, so it is not repeated
            raise click.BadParameter("give it as NAME=VALUE", context, parameter)
        options[name] = value
    return options


def common_options() -> list[click.Parameter]:
    """The options, a new set for each command."""
    kept_back: dict[str, Any] = {"expose_value": False, "is_eager": True}
    option = click.Option
    return [
        option(["--json", "as_json"], is_flag=True, callback=_flag, help="Print JSON.",
               **kept_back),
        option(["-q", "--quiet"], is_flag=True, callback=_flag,
               help="Print no progress bars and no hints.", **kept_back),
        option(["-v", "--verbose"], count=True, callback=_verbose,
               help="Log more; -vv also shows the traceback of an error.", **kept_back),
        option(["--storage-option"], multiple=True, metavar="NAME=VALUE", callback=_storage,
               help="An option of the object store (s3://, gs://, az://). Repeatable.",
               **kept_back),
    ]  # fmt: skip


class Command(click.Command):
    """A command that takes the common options as well as its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()


class LazyGroup(click.Group):
    """A click group with a table: command name -> (module, line for the list of commands).

    The module has a ``click.Command`` of that name. ``--help`` of the group and a shell's
    completion read the table only.
    """

    def __init__(
        self,
        name: str,
        *,
        table: Mapping[str, tuple[str, str]],
        help: str,  # noqa: A002 - click's own name
    ) -> None:
        super().__init__(name, help=help, params=common_options())
        self.table = dict(table)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in the table's order, which is the order in which one meets them."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command; None when there is no such command."""
        if cmd_name not in self.table:
            return None
        members = vars(import_module(self.table[cmd_name][0])).values()
        commands = (member for member in members if isinstance(member, click.Command))
        return next(command for command in commands if command.name == cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands and the group's options."""
        names = [
            CompletionItem(name, help=line)
            for name, (_, line) in self.table.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


class PathOrUrl(click.types.StringParamType):
    """A path or URL, taken as it is given; a shell completes it to a directory."""

    name = "place"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell to complete a directory."""
        return [CompletionItem(incomplete, type="dir")]


PLACE: Final = PathOrUrl()


def duration(text: str) -> float:
    """Seconds, given with a unit; click's usage error for anything else."""
    seconds = parse_duration(text)
    if seconds is None:
        raise click.BadParameter("not a duration like 90s, 2h or 7d")
    return seconds


def number_range(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> tuple[int, int] | None:
    """The first and last number of a range that is given as A..B; for a click callback."""
    if given is None:
        return None
    first, dots, last = given.partition("..")
    if not (dots and (first + last).isascii() and first.isdigit() and last.isdigit()):
        raise click.BadParameter(f"{given!r} is not A..B, like 3..7", context, parameter)
    return int(first), int(last)
