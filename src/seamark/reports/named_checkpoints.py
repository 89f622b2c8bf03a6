"""The checkpoint that a person means: by number, pin, UUID, or 'latest'.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from seamark._common.checks import U64_MAX
from seamark._common.retry import TRIES, pruned_too_fast
from seamark.errors import CheckpointNotFoundError, DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.inspection import scan
from seamark.store.owner import live_pins
from seamark.store.references import named_state

T = TypeVar("T")

LATEST: Final = "latest"
"""The newest checkpoint that is whole."""

_SHORTEST_PREFIX: Final = 4

_NUMBER: Final = re.compile(r"[0-9]+")

_MOST_DIGITS: Final = 20  # of 64 bits; more of them Python may not even read

_UUID: Final = re.compile(r"[0-9a-f-]+", re.IGNORECASE)


def resolve_id(store: CheckpointStore, text: str) -> int:
    """The checkpoint that a person means.

    Digits are a number; then comes a pin's name, then the beginning of a UUID (of the attempt or
    of the partitioned state); ``latest`` is the newest one that is whole.
    """
    if _NUMBER.fullmatch(text):
        return _numbered(store, text)
    pin = live_pins(store.owner()).get(text)
    if pin is not None:
        return pin.checkpoint_id
    if text == LATEST:
        return _latest(store)
    if len(text) >= _SHORTEST_PREFIX and _UUID.fullmatch(text):
        return _by_prefix(store, text.lower())
    raise CheckpointNotFoundError(
        f"no checkpoint is called {text!r}",
        where=store.url,
        hint="Give a number, the name of a pin, four or more characters of a UUID, or 'latest'. "
        f"'seamark list {shlex.quote(store.url)}' shows what there is.",
    )


def load_named(store: CheckpointStore, text: str) -> CheckpointManifest:
    """The checkpoint that a person means. While others are pruned ``latest`` is a newer one."""
    return use_named(store, text, lambda manifest: manifest)


def use_named(store: CheckpointStore, text: str, use: Callable[[CheckpointManifest], T]) -> T:
    """What a function makes of the checkpoint that a person means.

    When that is pruned meanwhile, ``latest`` is a newer one.
    """
    return use_ids(store, [text], lambda checkpoint_id: use(load(store, checkpoint_id)))


def use_ids(store: CheckpointStore, names: Iterable[str], use: Callable[..., T]) -> T:
    """What a function makes of the ids of the checkpoints that a person means.

    When it misses one, the names are looked up again: if they mean others now, as ``latest`` does
    after a prune, it is called with those.
    """
    texts = list(names)
    ids = [resolve_id(store, text) for text in texts]
    for _ in range(TRIES):
        try:
            return use(*ids)
        except CheckpointNotFoundError:
            before, ids = ids, [resolve_id(store, text) for text in texts]
            if ids == before:
                raise
    raise pruned_too_fast(store.url)


def _numbered(store: CheckpointStore, text: str) -> int:
    digits = text.lstrip("0") or "0"
    if len(digits) <= _MOST_DIGITS and int(digits) <= U64_MAX:
        return int(digits)
    shown = digits if len(digits) <= 2 * _MOST_DIGITS else f"{digits[:_MOST_DIGITS]}…"
    raise CheckpointNotFoundError(
        f"there is no checkpoint {shown}: no id is that large",
        where=store.url,
        hint=f"'seamark list {shlex.quote(store.url)}' shows which there are.",
    )


def load(store: CheckpointStore, checkpoint_id: int) -> CheckpointManifest:
    """A manifest; :class:`CheckpointNotFoundError` when there is none."""
    try:
        manifest = store.load_by_id(checkpoint_id) if checkpoint_id else None
    except DamageError as error:
        raise DamageError(
            error.what,
            where=error.where,
            hint=error.hint
            if error.what.startswith("owner.json")
            else f"'seamark recover {shlex.quote(store.url)} --explain' shows which checkpoint a "
            "start would choose.",
        ) from None
    if manifest is None:
        raise CheckpointNotFoundError(
            f"there is no checkpoint {checkpoint_id}",
            where=store.url,
            hint=f"'seamark list {shlex.quote(store.url)}' shows which there are.",
        )
    return manifest


def _latest(store: CheckpointStore) -> int:
    walk = store.recover_latest_validated()
    if walk.chosen_id is None:
        if walk.fresh_start:
            raise CheckpointNotFoundError("the store is empty", where=store.url)
        if walk.begins_anew:
            raise CheckpointNotFoundError(
                "all checkpoints of this store were given up, and none was saved since",
                where=store.url,
                hint="The next epoch of the pipeline saves one, and begins anew.",
            )
        raise DamageError(
            "no checkpoint of this store is whole",
            where="; ".join(f"{number}: {why}" for number, why in walk.skipped[:5]),
            hint=f"'seamark recover {shlex.quote(store.url)} --explain' shows all.",
        )
    return walk.chosen_id


def uuids_of(manifest: CheckpointManifest) -> list[str]:
    """The UUIDs by which a checkpoint can be named."""
    uuids = []
    if attempt := manifest.attempt:
        uuids.append(attempt.partition("-")[2] or attempt)  # after the generation
    try:
        state = named_state(manifest)
    except DamageError:
        state = None
    return [*uuids, str(state)] if state is not None else uuids


def _by_prefix(store: CheckpointStore, prefix: str) -> int:
    bare = prefix.replace("-", "")
    ids = {
        scanned.checkpoint_id
        for scanned in scan(store)
        for name in (uuids_of(scanned.manifest) if scanned.manifest is not None else [])
        if name.lower().replace("-", "").startswith(bare)
    }
    if len(ids) > 1:
        raise InvalidInputError(
            f"{prefix!r} is the beginning of {len(ids)} UUIDs",
            where=f"checkpoints {', '.join(map(str, sorted(ids)))}",
            hint="Give more characters.",
        )
    if not ids:
        raise CheckpointNotFoundError(
            f"no checkpoint has a UUID that begins with {prefix!r}", where=store.url
        )
    return ids.pop()
