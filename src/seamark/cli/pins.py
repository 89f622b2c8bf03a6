"""``seamark pin`` and ``seamark unpin``: keep a checkpoint under a name, or no longer."""

from __future__ import annotations

import shlex

import click

from seamark._common.text import time_text
from seamark._control_characters import escape_controls
from seamark.cli.commands import PLACE, Command, duration
from seamark.cli.layout import print_paragraph
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError, InvalidInputError
from seamark.reports.named_checkpoints import use_ids
from seamark.store.owner import Pin


@click.command("pin", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="ID")
@click.argument("name")
@click.option(
    "--expires", type=duration, metavar="DURATION", help="Keep it only this long, like 30d."
)
def pin_command(store: str, checkpoint: str, name: str, expires: float | None) -> None:
    """Keep a checkpoint under a name.

    As long as the pin exists, neither the checkpoint nor anything it builds on is pruned. A running
    pipeline is not disturbed.
    """
    _check(name)
    with opened_store(store) as opened:

        def pinned(checkpoint_id: int) -> tuple[int, Pin]:
            try:
                return checkpoint_id, opened.pin(name, checkpoint_id, expires_in=expires)
            except CheckpointNotFoundError as error:
                shows = f"'seamark list {shlex.quote(store)}' shows which there are."
                raise CheckpointNotFoundError(error.what, where=error.where, hint=shows) from None

        checkpoint_id, pin = use_ids(opened, [checkpoint], pinned)
        document = {
            "store": opened.url,
            "name": name,
            "id": checkpoint_id,
            "created_at_ms": pin.created_at_ms,
            "expires_at_ms": pin.expires_at_ms,
        }

    def show(_: Document) -> None:
        until = f" until {time_text(pin.expires_at_ms)}" if pin.expires_at_ms is not None else ""
        print_paragraph(f"Checkpoint {checkpoint_id} is pinned as {name}{until}.")
        print_hint(f"To undo it:  seamark unpin {shlex.join([store, name])}")

    print_answer(document, show)


@click.command("unpin", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("name")
def unpin_command(store: str, name: str) -> None:
    """Remove a pin.

    The checkpoint itself stays until a prune removes it.
    """
    with opened_store(store) as opened:
        pins = opened.pins()
        if name not in pins:
            names = ", ".join(sorted(pins)) or "none"
            raise CheckpointNotFoundError(
                f"there is no pin {name!r}", where=opened.url, hint=f"There are: {names}."
            )
        opened.unpin(name)
        checkpoint_id = pins[name].checkpoint_id
        document = {"store": opened.url, "name": name, "id": checkpoint_id}

    def show(_: Document) -> None:
        print_paragraph(f"The pin {name} is gone from checkpoint {checkpoint_id}.")
        words = shlex.join([store, str(checkpoint_id), name])
        print_hint(f"To pin it again:  seamark pin {words}")

    print_answer(document, show)


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
