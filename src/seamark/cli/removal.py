"""What the commands that remove things share: their options, checks and claim.

Tests: ``tests/cli/test_prune.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from seamark._common.logs import logger_named
from seamark._common.os_errors import is_disk_full
from seamark._common.text import default_writer, size_text
from seamark.blobs.contract import PROBE_PREFIX, TEMPORARY
from seamark.cli.layout import print_paragraph, print_warnings
from seamark.cli.output import Document, print_hint
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
    "--force", is_flag=True, help="Do it even if another system wrote the newest checkpoint."
)


def removal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--yes``, ``--take-over`` and ``--force``."""
    take_over_help = "Do it even if a writer may be alive. This stops that writer."
    take_over = click.option("--take-over", is_flag=True, help=take_over_help)
    yes_help = "Do it. Without this, only show what would be done."
    return click.option("--yes", is_flag=True, help=yes_help)(take_over(force_option(command)))


def require_store(store: CheckpointStore, *, or_empty: bool = False) -> None:
    """:class:`CheckpointNotFoundError` for a place that nothing shows to be a store.

    ``or_empty`` also accepts a place without any leftovers of a store.
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

    That system does not know our claims, so it may be running and may need what would be removed.
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
            hint="Nothing was changed. That system ignores claims and may still use this "
            "store. If it never will again, add --force.",
        )


def options_needed(store: CheckpointStore, *, take_over: bool, force: bool) -> list[str]:
    """The options that must be added to the command line to do it, as far as is known now."""
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


def show_removal(document: Document, nothing: str, kept: str = "", would_keep: str = "") -> None:
    """How much was removed or would be, and what that takes; ``nothing`` if there is nothing."""
    print_warnings(document["warnings"])
    freed = size_text(document["freed_bytes"])
    if not document["remove"]:
        print_paragraph(nothing)
    elif document["done"]:
        print_paragraph(f"Removed {document['removed']}, about {freed}{kept}.")
    else:
        print_paragraph(f"Would remove {len(document['remove'])}, about {freed}{would_keep}.")
        print_hint(_how_to_do_it(document["needs"]))


def _how_to_do_it(needed: list[str]) -> str:
    if needed == ["--yes"]:
        return "Nothing was changed. The same with --yes does it."
    why = {
        "--force": "another system wrote the newest",
        "--take-over": "a writer may be alive",
    }
    reasons = " and ".join(why[option] for option in needed if option in why)
    return f"Nothing was changed. It takes {' '.join(needed)}: {reasons}."


def run_removal(
    store: CheckpointStore,
    what: str,
    document: Document,
    remove: Callable[[], None],
    *,
    yes: bool,
    take_over: bool,
    force: bool,
) -> None:
    """Remove what a plan names or, without ``yes``, note what that takes."""
    if not yes:
        document["needs"] = options_needed(store, take_over=take_over, force=force)
    elif document["remove"] or take_over:
        _claim(store, what, take_over=take_over, force=force)
        remove()
        document["done"] = True


def _claim(store: CheckpointStore, what: str, *, take_over: bool, force: bool) -> None:
    """Become the only writer for as long as things are removed.

    This does not stop a running pipeline: it raises :class:`FencedError` instead, unless
    ``take_over`` is set. The claim is released when the store is closed.
    """
    require_store(store)
    refuse_foreign(store, force=force)
    try:
        store.claim(writer=f"{default_writer()} {what}", take_over=take_over)
    except FencedError as error:
        if take_over:
            raise
        raise FencedError(
            "a writer may be using this store, so nothing was removed",
            where=error.where,
            hint=f"Stop the pipeline first, then {what} again. If it is dead for certain, "
            "--take-over claims the store; a writer that is alive after all is stopped by "
            "that. A running pipeline prunes by itself when it has 'keep'.",
        ) from None
    except StoreUnavailableError as error:
        # a claim has to be written; on a full disk nobody can save, and nobody owns the store
        if take_over or not is_disk_full(error):
            raise
        store.check_claim()
        log.warning("the disk is full, so the store is not claimed first: %s", error.what)
