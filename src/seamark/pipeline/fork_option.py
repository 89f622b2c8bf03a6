"""What a pipeline does with ``fork=``: it begins its empty store at a checkpoint of another one.

Tests: ``tests/pipeline/test_forks.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from seamark._common.logs import logger_named
from seamark._common.text import size_text
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import CheckpointManifest
from seamark.manifest.origins import ForkOrigin
from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    CompatibilityCheck,
    check_checkpoint,
    check_store,
    refuse_if_incompatible,
)
from seamark.pipeline.declaration.fork_origin import require_apart
from seamark.pipeline.declaration.source_positions import require_topics
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.recovery.fork import (
    Chosen,
    Forked,
    choose,
    choose_again,
    first_of,
    fork_store,
)
from seamark.store import CheckpointStore, open_store
from seamark.store.checkpoint_address import CheckpointAddress
from seamark.store.inspection import newest_checkpoint

log = logger_named("seamark.pipeline")

LongWork = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


class ForkOption:
    """The checkpoint that a pipeline is forked from, as its program names it."""

    def __init__(
        self, given: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
    ) -> None:
        self.address = CheckpointAddress.parse(given)
        remote = "://" in self.address.store and not self.address.store.startswith("file:")
        self._options = storage_options if remote else None
        self._chosen: Chosen | None = None
        self._open().close()  # a wrong URL is reported here

    def _open(self) -> CheckpointStore:
        return open_store(self.address.store, storage_options=self._options)

    def chosen(self, origin: CheckpointStore) -> Chosen:
        """The checkpoint, which stays the same for all that this pipeline asks."""
        if self._chosen is None:
            self._chosen = choose(origin, self.address.checkpoint_id)
        return self._chosen

    def newest(self, store: CheckpointStore) -> CheckpointManifest | None:
        """What the pipeline goes on from: its own newest checkpoint, or what it is forked from.

        :class:`RefusedError` when the store holds another history.
        """
        own = first_of(store)
        if own is not None:
            self._require_same_origin(own.fork, store)
            return own
        with self._open() as origin:
            return self.chosen(origin).first()

    def _require_same_origin(self, origin: ForkOrigin | None, store: CheckpointStore) -> None:
        number = self.address.checkpoint_id
        with self._open() as there:
            if (
                origin is not None
                and number in (None, origin.checkpoint_id)
                and (there.url == origin.url or _timeline(there, origin) == origin.timeline)
            ):
                return
            shown = f"{there.url}@{number or 'latest'}"
        was = "no fork" if origin is None else f"{origin.url}@{origin.checkpoint_id}"
        raise RefusedError(
            f"this store was not forked from {shown}",
            where=f"{store.url}: it was forked from {was}",
            hint="Take fork= out of the program to go on, or give the new fork a new store.",
        )

    def check(self, store: CheckpointStore, declared: DeclaredPipeline) -> CompatibilityCheck:
        """Compare a pipeline with what it would go on from. Changes nothing.

        :class:`RefusedError` when it would write where the origin writes.
        """
        newest, settings = self.newest(store), declared.settings
        if newest is not None and newest.fork is not None:
            require_apart(newest.fork, declared.identity, settings.consumer_group)
        return check_checkpoint(
            newest, declared.identity, settings.policy, settings.reanchor, settings.upgrade
        )

    def begin(
        self,
        store: CheckpointStore,
        declared: DeclaredPipeline,
        long_work: LongWork,
    ) -> list[str]:
        """Make an empty store the fork. What was done, for the report; empty for a later start.

        Nothing is claimed or written before it is known that the pipeline can go on from there.
        """
        try:
            return self._begun(store, declared, long_work)
        except (CheckpointNotFoundError, DamageError) as error:
            if self._chosen is None or self.address.checkpoint_id is not None:
                raise
            with self._open() as origin:
                again = choose_again(origin, self._chosen, error)
            number = self._chosen.origin.checkpoint_id
            log.warning("checkpoint %s could not be forked: %s", number, error)
            self._chosen = again
            return self._begun(store, declared, long_work)

    def _begun(
        self,
        store: CheckpointStore,
        declared: DeclaredPipeline,
        long_work: LongWork,
    ) -> list[str]:
        check = self.check(store, declared)
        if first_of(store) is not None:
            return []
        with self._open() as origin:
            refuse_if_incompatible(origin, check)
            if check.fit is Compatibility.RESET:
                raise RefusedError(
                    "the pipeline cannot go on from the checkpoint that it is forked from",
                    where=f"{origin.url}: {'; '.join(check.changes)}.",
                    hint="policy='evolve' carries over what has stayed the same. Without fork= "
                    "the pipeline starts over.",
                )
            require_topics(declared.identity)
            chosen = self.chosen(origin)
            size = chosen.manifest.restore_bytes or 0
            with long_work("forking", size) as advance:
                forked = fork_store(
                    origin,
                    store,
                    chosen,
                    pipeline=declared.identity.name,
                    sizes=declared.settings.sizes,
                    patience=declared.settings.store_timeout,
                    advance=advance,
                )
        return [fork_text(forked)]


def check_start(
    store: CheckpointStore, declared: DeclaredPipeline, fork: ForkOption | None
) -> CompatibilityCheck:
    """Compare a pipeline with what a start would go on from. Changes nothing.

    :class:`RefusedError` when the store is a fork, and a sink writes where its origin writes.
    """
    _require_apart_from_origin(store, declared)
    if fork is not None:
        return fork.check(store, declared)
    settings = declared.settings
    return check_store(
        store, declared.identity, settings.policy, settings.reanchor, settings.upgrade
    )


def prepare_store(
    store: CheckpointStore,
    declared: DeclaredPipeline,
    fork: ForkOption | None,
    long_work: LongWork,
) -> list[str]:
    """Make the store a fork if that is asked for; what was done, for the report.

    :class:`RefusedError` when it is one, and a sink writes where its origin writes. Called before
    any sink is opened.
    """
    _require_apart_from_origin(store, declared)
    return [] if fork is None else fork.begin(store, declared, long_work)


def _require_apart_from_origin(store: CheckpointStore, declared: DeclaredPipeline) -> None:
    newest = newest_checkpoint(store)
    if newest is not None and newest.fork is not None:
        require_apart(newest.fork, declared.identity, declared.settings.consumer_group)


def fork_text(forked: Forked) -> str:
    """What a fork has done, in one line."""
    origin = forked.chosen.origin
    moved = "" if not forked.streamed else f", {size_text(forked.streamed)} of it copied"
    state = f"{forked.objects} objects, {size_text(forked.size)}{moved}"
    text = f"forked from {origin.url}@{origin.checkpoint_id} after epoch {origin.epoch} ({state})"
    damaged = ", ".join(str(number) for number, _ in forked.chosen.skipped)
    return f"{text}; newer and damaged: {damaged}" if damaged else text


def _timeline(store: CheckpointStore, origin: ForkOrigin) -> str | None:
    """The timeline of the checkpoint in a store; None when that cannot be read any more."""
    try:
        manifest = store.load_by_id(origin.checkpoint_id)
    except SeamarkError:
        return None
    return None if manifest is None else manifest.timeline or ""
