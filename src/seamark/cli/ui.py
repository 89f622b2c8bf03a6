"""``seamark ui``: stores and checkpoint directories in a browser."""

from __future__ import annotations

import textwrap
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import click

from seamark.cli.commands import PLACE, Command, settings
from seamark.cli.output import WIDTH, print_hint, print_json, print_long
from seamark.errors import InvalidInputError, SeamarkError

if TYPE_CHECKING:
    from seamark.ui.server import PageServer


@click.command("ui", cls=Command)
@click.argument("places", metavar="STORE|PATH ...", nargs=-1, required=True, type=PLACE)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="0 takes any port that is free.",
)
@click.option("--open", "open_it", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--token",
    envvar="SEAMARK_UI_TOKEN",
    show_envvar=True,
    help="What a viewer must show; needed if others than this machine can reach the page.",
)
@click.option(
    "--name", "names", multiple=True, help="A name by which the page is reached. Repeatable."
)
def command(
    places: tuple[str, ...],
    host: str,
    port: int,
    open_it: bool,
    token: str | None,
    names: tuple[str, ...],
) -> None:
    """Show stores and checkpoint directories in a browser.

    Serves a page until it is interrupted. The page reads and changes nothing; for everything else
    it has the commands to copy. STORE is a path or URL; PATH is the checkpoint directory of a Spark
    query.
    """
    require_extra()
    from seamark.ui.places import places_at
    from seamark.ui.server import PageServer, check_access

    try:
        check_access(host, token)
    except InvalidInputError as error:
        told = f"{error.what}. {error.hint or ''}".strip()
        raise click.UsageError(textwrap.fill(told, WIDTH - len("Error: "))) from None
    options = settings().storage_options
    server = PageServer(
        places_at(places, options),
        host=host,
        port=port,
        token=token,
        names=names,
        storage_options=options,
    )

    def tell() -> None:
        _tell(server, token, open_it=open_it)

    server.run(tell)


def _tell(server: PageServer, token: str | None, *, open_it: bool) -> None:
    """Say where the page is, and open it."""
    if settings().as_json:
        print_json({"url": server.url, "host": server.host, "port": server.port})
    else:
        wanted = " (with ?token=… in the first address)" if token else ""
        print_long(f"The page is at {server.url}{wanted}")
        print_hint("It only reads. Ctrl-C ends it.")
    if open_it:
        webbrowser.open(f"{server.url}?{urlencode({'token': token})}" if token else server.url)


def require_extra() -> None:
    """Say how to get what the page needs, where that is missing."""
    if any(find_spec(package) is None for package in ("starlette", "uvicorn", "jinja2")):
        raise SeamarkError(
            "the page needs packages that are not installed",
            hint="pip install 'seamark[cli,ui]' brings them.",
        )
