"""The options that every command has, before or after its name, and their values.

Tests: ``tests/cli/test_frame.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import click

from seamark.cli.stderr_logs import hide_values

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
    current = context.find_root().meta.get(_KEY) if context is not None else None
    return current if isinstance(current, Settings) else Settings()


def _change(context: click.Context, **changes: Any) -> None:
    meta = context.find_root().meta
    meta[_KEY] = replace(meta.get(_KEY, Settings()), **changes)


def _now(context: click.Context) -> Settings:
    current = context.find_root().meta.get(_KEY, Settings())
    assert isinstance(current, Settings)
    return current


def _json(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        _change(context, as_json=True)


def _quiet(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        _change(context, quiet=True)
        _log_level(context)


def _verbose(context: click.Context, _: click.Parameter, count: int) -> None:
    if count:
        _change(context, verbosity=_now(context).verbosity + count)
        _log_level(context)


def _log_level(context: click.Context) -> None:
    now = _now(context)
    levels = {0: logging.WARNING, 1: logging.INFO}
    level = logging.ERROR if now.quiet else levels.get(now.verbosity, logging.DEBUG)
    logging.getLogger("seamark").setLevel(level)


def _storage(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    options = dict(_now(context).storage_options)
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            # the value may be a secret, so it is not repeated
            raise click.BadParameter("give it as NAME=VALUE", context, parameter)
        options[name] = value
    if given:
        _change(context, storage_options=options)
        hide_values(options)


def common_options() -> list[click.Parameter]:
    """The options, a new set for each command."""
    kept_back: dict[str, Any] = {"expose_value": False, "is_eager": True}
    flag: Callable[..., click.Option] = click.Option
    return [
        flag(["--json", "as_json"], is_flag=True, callback=_json, help="Print JSON.", **kept_back),
        flag(["-q", "--quiet"], is_flag=True, callback=_quiet,
             help="Print no progress bars and no hints.", **kept_back),
        flag(["-v", "--verbose"], count=True, callback=_verbose,
             help="Log more; -vv also shows the traceback of an error.", **kept_back),
        flag(["--storage-option"], multiple=True, metavar="NAME=VALUE", callback=_storage,
             help="An option of the object store (s3://, gs://, az://). Repeatable.",
             **kept_back),
    ]  # fmt: skip


class Command(click.Command):
    """A command that takes the common options as well as its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()
