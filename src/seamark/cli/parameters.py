"""Types of arguments and options: a path or URL, and a duration.

Tests: ``tests/cli/test_frame.py``.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem

from seamark._common.text import parse_duration


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
