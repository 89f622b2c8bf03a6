"""The type of every argument that names a place, so that a shell completes paths for it."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem


class Place(click.types.StringParamType):
    """A path or URL, taken as it is given; a shell offers the directories that there are."""

    name = "place"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell to complete a directory."""
        return [CompletionItem(incomplete, type="dir")]


PLACE: Final = Place()
