"""What commands that remove things share: the claim that they need, and the way they ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from seamark._common.logs import logger_named
from seamark._common.os_errors import is_disk_full
from seamark._common.writer import default_writer
from seamark.blobs.leftovers import PROBE_PREFIX, TEMPORARY
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.store import CheckpointStore
from seamark.store.inspection import is_store

log = logger_named(__name__)

force_option = click.option(
    "--force", is_flag=True, help="Also when another system wrote the newest checkpoint."
)


def removal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--yes``, ``--take-over`` and ``--force``."""
    for option in (
        force_option,
        click.option(
            "--take-over",
            is_flag=True,
            help="Also when a writer may be alive: it is stopped by that.",
        ),
        click.option("--yes", is_flag=True, help="Do it. Without this it is only shown."),
    ):
        command = option(command)
    return command


def require_store(store: CheckpointStore, *, or_empty: bool = False) -> None:
    """:class:`CheckpointNotFoundError` for a place that nothing shows to be a store.

    ``or_empty`` lets pass one that has nothing of what a store could have left either.
    """
    if is_store(store):
        return
    if not or_empty or any(store.backend.entries(name) for name in (TEMPORARY, PROBE_PREFIX)):
        raise CheckpointNotFoundError(
            "this is not a store: it has neither owner.json nor checkpoints",
            where=store.url,
            hint="Nothing was changed. Is the path right?",
        )


def refuse_foreign(store: CheckpointStore, *, force: bool) -> None:
    """:class:`RefusedError` when another system wrote the newest checkpoint, unless ``force``.

    It knows nothing of our claims, so it may be running, and it may need what would go.
    """
    if force:
        return
    try:
        newest = store.load_latest()
    except DamageError:
        return
    if newest is not None and not newest.is_ours:
        raise RefusedError(
            f"another system wrote checkpoint {newest.checkpoint_id}, the newest one",
            where=store.url,
            hint="Nothing was changed. It does not know who has claimed this store and may be "
            "using it. When it never will again, --force does it.",
        )


def options_needed(
    store: CheckpointStore, *, take_over: bool = False, force: bool = False
) -> list[str]:
    """What has to be added to the command line to have it done, as far as can be told now."""
    needed = ["--yes"]
    try:
        refuse_foreign(store, force=force)
    except RefusedError:
        needed.append("--force")
    try:
        if not take_over:
            store.check_claim()
    except FencedError:
        needed.append("--take-over")
    return needed


def how_to_do_it(needed: list[str]) -> str:
    """The last line of a command that has changed nothing."""
    if needed == ["--yes"]:
        return "Nothing was changed. The same with --yes does it."
    why = {
        "--force": "another system wrote the newest",
        "--take-over": "a writer may be alive",
    }
    reasons = " and ".join(why[option] for option in needed if option in why)
    return f"Nothing was changed. It takes {' '.join(needed)}: {reasons}."


def claim_to_remove(
    store: CheckpointStore, what: str, *, take_over: bool, force: bool = False
) -> None:
    """Become the only writer for as long as things are removed.

    A pipeline that is running is not stopped by that: :class:`FencedError`, unless
    ``take_over``. The claim is given back when the store is closed.
    """
    require_store(store)
    refuse_foreign(store, force=force)
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
    try:
        store.claim(writer=f"{default_writer()} {what}")
    except StoreUnavailableError as error:
        # a claim has to be written; on a full disk nobody can save, and nobody owns the store
        if take_over or not is_disk_full(error):
            raise
        store.check_claim()
        log.warning("the disk is full, so the store is not claimed first: %s", error.what)
