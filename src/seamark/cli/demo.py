"""``seamark demo``: see Seamark at work in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Where the demo keeps its files.",
)
def command(folder: Path) -> None:
    """See Seamark at work in a folder of its own."""
    from seamark.store import open_store

    checkpoints = folder / "checkpoints"
    store = open_store(str(checkpoints))
    click.echo(f"{type(store).__name__} at {checkpoints}")
