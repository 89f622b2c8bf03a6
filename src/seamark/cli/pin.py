"""``seamark pin``: keep a checkpoint under a name."""

from __future__ import annotations

import click

from seamark.cli.durations import duration
from seamark.cli.layout import print_paragraph
from seamark.cli.output import hint, print_json, time_text
from seamark.cli.settings import Command, settings
from seamark.cli.stores import opened, resolve_id


@click.command("pin", cls=Command)
@click.argument("store")
@click.argument("checkpoint", metavar="ID")
@click.argument("name")
@click.option("--expires", type=duration, metavar="SPAN", help="Until then only, like 30d.")
def command(store: str, checkpoint: str, name: str, expires: float | None) -> None:
    """Keep a checkpoint under a name.

    Neither it nor anything that it builds on is pruned as long as the pin is there. A pipeline
    that is running is not disturbed.
    """
    with opened(store) as found:
        checkpoint_id = resolve_id(found, checkpoint)
        pin = found.pin(name, checkpoint_id, expires_in=expires)
        url = found.url
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
    hint(f"To undo it:  seamark unpin {store} {name}")
