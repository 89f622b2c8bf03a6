"""``seamark pin``: keep a checkpoint under a name.

Tests: ``tests/cli/test_pins.py``.
"""

from __future__ import annotations

import click

from seamark._common.text import time_text
from seamark.cli.common_options import Command, settings
from seamark.cli.control_characters import escape_controls
from seamark.cli.layout import print_paragraph
from seamark.cli.output import print_hint, print_json
from seamark.cli.parameters import PLACE, duration
from seamark.cli.store_argument import opened_store, resolve_id
from seamark.errors import CheckpointNotFoundError, InvalidInputError


@click.command("pin", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="ID")
@click.argument("name")
@click.option(
    "--expires", type=duration, metavar="DURATION", help="Keep it only this long, like 30d."
)
def command(store: str, checkpoint: str, name: str, expires: float | None) -> None:
    """Keep a checkpoint under a name.

    As long as the pin exists, neither the checkpoint nor anything it builds on is pruned. A running
    pipeline is not disturbed.
    """
    _check(name)
    with opened_store(store) as opened:
        checkpoint_id = resolve_id(opened, checkpoint)
        try:
            pin = opened.pin(name, checkpoint_id, expires_in=expires)
        except CheckpointNotFoundError as error:
            shows = f"'seamark list {store}' shows which there are."
            raise CheckpointNotFoundError(error.what, where=error.where, hint=shows) from None
        url = opened.url
    if settings().as_json:
        print_json(
            {
                "store": url,
                "name": name,
                "id": checkpoint_id,
                "created_at_ms": pin.created_at_ms,
                "expires_at_ms": pin.expires_at_ms,
            }
        )
        return
    until = f" until {time_text(pin.expires_at_ms)}" if pin.expires_at_ms is not None else ""
    print_paragraph(f"Checkpoint {checkpoint_id} is pinned as {name}{until}.")
    print_hint(f"To undo it:  seamark unpin {store} {name}")


def _check(name: str) -> None:
    """Refuse a name by which another checkpoint would be found, or that a screen cannot show."""
    if escape_controls(name) != name:
        raise InvalidInputError(
            "a pin cannot have a control character in its name",
            where=escape_controls(name),
            hint="Choose a name that can be typed.",
        )
    if name.lower() == "latest" or name.isdecimal():
        taken = "the newest checkpoint" if name.lower() == "latest" else "a checkpoint by its id"
        raise InvalidInputError(
            f"a pin cannot be called {name}: that means {taken}",
            hint="Choose another name, like before-upgrade.",
        )
