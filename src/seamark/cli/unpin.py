"""``seamark unpin``: remove the pin of a checkpoint.

Tests: ``tests/cli/test_pins.py``.
"""

from __future__ import annotations

import click

from seamark.cli.common_options import Command, settings
from seamark.cli.layout import print_paragraph
from seamark.cli.output import print_hint, print_json
from seamark.cli.parameters import PLACE
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError


@click.command("unpin", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("name")
def command(store: str, name: str) -> None:
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
        url = opened.url
    if settings().as_json:
        print_json({"store": url, "name": name, "id": checkpoint_id})
        return
    print_paragraph(f"The pin {name} is gone from checkpoint {checkpoint_id}.")
    print_hint(f"To pin it again:  seamark pin {store} {checkpoint_id} {name}")
