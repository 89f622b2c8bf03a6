"""What commands that remove things share: the claim that they need, and the way they ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from seamark.errors import DamageError, FencedError, SeamarkError
from seamark.spark.placement import drop_unreferenced, states_beside, unreferenced
from seamark.state import CheckpointId
from seamark.store import CheckpointStore
from seamark.store.ownership import default_writer


def removal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--yes`` and ``--take-over``."""
    for option in (
        click.option(
            "--take-over",
            is_flag=True,
            help="Also when a writer may be alive: it is stopped by that.",
        ),
        click.option("--yes", is_flag=True, help="Do it. Without this it is only shown."),
    ):
        command = option(command)
    return command


def claim_to_remove(store: CheckpointStore, what: str, *, take_over: bool) -> None:
    """Become the only writer for as long as things are removed.

    A pipeline that is running is not stopped by that: :class:`FencedError`, unless
    ``take_over``. The claim is given back when the store is closed.
    """
    if not take_over:
        try:
            store.check_claim()
        except FencedError as error:
            raise FencedError(
                "a writer may be using this store, so nothing was removed",
                where=error.where,
                hint=f"Stop the pipeline first, then {what} again. If it is dead for certain, "
                "--take-over claims the store; a writer that is alive after all is stopped by "
                "that. A running pipeline prunes by itself when it has 'keep'.",
            ) from None
    store.claim(writer=f"{default_writer()} {what}")


def unreferenced_states(store: CheckpointStore) -> tuple[list[CheckpointId], str | None]:
    """Partitioned state that nobody points at, or why that cannot be told."""
    try:
        return unreferenced(store, states_beside(store)), None
    except DamageError as error:
        return [], _cannot_tell(error)


def drop_states(store: CheckpointStore) -> tuple[int, str | None]:
    """Remove it; how many, and why not if it could not be told."""
    states = states_beside(store)
    before = len(states.list())
    try:
        return before - drop_unreferenced(store, states), None
    except DamageError as error:
        return 0, _cannot_tell(error)


def _cannot_tell(error: SeamarkError) -> str:
    return f"partitioned state was left alone, as nobody knows who needs it: {error.what}"
