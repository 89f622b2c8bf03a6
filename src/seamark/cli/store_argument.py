"""Opening the store that a command is pointed at, and finding the checkpoint that it names.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from seamark._common.checks import U64_MAX
from seamark.blobs.addresses import refuse_broken_url
from seamark.cli.commands import settings
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore, open_store
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import scan
from seamark.store.owner import live_pins
from seamark.store.references import named_state

T = TypeVar("T")

_SHORTEST_PREFIX: Final = 4
_NUMBER: Final = re.compile(r"[0-9]+")
_MOST_DIGITS: Final = 20  # of 64 bits; more of them Python may not even read
_UUID: Final = re.compile(r"[0-9a-f-]+", re.IGNORECASE)


@contextmanager
def opened_store(url: str, *, must_exist: bool = True) -> Iterator[CheckpointStore]:
    """The store at a path or URL; :class:`CheckpointNotFoundError` for a path that is not there.

    An empty directory is an empty store.
    """
    if must_exist:
        require_path(url, "store")
        _refuse_spark_directory(url)
    # a command may name a local and a remote place; the options are for the remote one
    options = settings().storage_options if local_path(url) is None else None
    with open_store(url, storage_options=options or None) as store:
        yield store


def require_path(url: str, what: str) -> None:
    """Refuse a local path that does not exist; a remote one is only checked when it is read."""
    path = local_path(url)
    if path is None:
        return
    refuse_broken_url(url)
    try:
        kind = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(
            f"there is no {what} at {url}: no such directory", hint="Is the path right?"
        ) from None
    except OSError as error:
        raise StoreUnavailableError(
            f"the {what} at {url} cannot be reached: {error.strerror}",
            hint="That says nothing about what it holds. May this user read it?",
        ) from None
    if not stat.S_ISDIR(kind):
        raise CheckpointNotFoundError(
            f"there is no {what} at {url}: it is a file", hint="Is the path right?"
        )


def _refuse_spark_directory(url: str) -> None:
    """Refuse the ``checkpointLocation`` of a query, which is not one of our stores."""
    path = local_path(url)
    if path is None:
        return
    own_names = ("owner.json", "checkpoints", "manifests")
    is_ours = any(os.path.exists(f"{path}/{name}") for name in own_names)
    if not is_ours and os.path.isdir(f"{path}/offsets") and os.path.isfile(f"{path}/metadata"):
        raise CheckpointNotFoundError(
            "this is the checkpoint directory of a Spark query, not a store",
            where=url,
            hint=f"'seamark spark inspect {url}' shows what is in it; 'seamark spark snapshot "
            f"{url} STORE' takes it into a store.",
        )


def local_path(url: str) -> str | None:
    """The path that a path or ``file:`` URL means; None for anything else."""
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url) else url


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
    if text == "latest":
        return _latest(store)
    if len(text) >= _SHORTEST_PREFIX and _UUID.fullmatch(text):
        return _by_prefix(store, text.lower())
    raise CheckpointNotFoundError(
        f"no checkpoint is called {text!r}",
        where=store.url,
        hint="Give a number, the name of a pin, four or more characters of a UUID, or 'latest'. "
        f"'seamark list {store.url}' shows what there is.",
    )


def load_named(store: CheckpointStore, text: str) -> CheckpointManifest:
    """The checkpoint that a person means. While others are pruned ``latest`` is a newer one."""
    return use_named(store, text, lambda manifest: manifest)


def use_named(store: CheckpointStore, text: str, use: Callable[[CheckpointManifest], T]) -> T:
    """What a function makes of the checkpoint that a person means.

    When that is pruned meanwhile, ``latest`` is a newer one.
    """

    def look() -> T:
        checkpoint_id = resolve_id(store, text)
        try:
            return use(load(store, checkpoint_id))
        except CheckpointNotFoundError:
            if text != "latest":
                raise
            raise Overtaken from None

    return until_settled(look, store.url)


def _numbered(store: CheckpointStore, text: str) -> int:
    digits = text.lstrip("0") or "0"
    if len(digits) <= _MOST_DIGITS and int(digits) <= U64_MAX:
        return int(digits)
    shown = digits if len(digits) <= 2 * _MOST_DIGITS else f"{digits[:_MOST_DIGITS]}…"
    raise CheckpointNotFoundError(
        f"there is no checkpoint {shown}: no id is that large",
        where=store.url,
        hint=f"'seamark list {store.url}' shows which there are.",
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
            else f"'seamark recover {store.url} --explain' shows which checkpoint a start would "
            "choose.",
        ) from None
    if manifest is None:
        raise CheckpointNotFoundError(
            f"there is no checkpoint {checkpoint_id}",
            where=store.url,
            hint=f"'seamark list {store.url}' shows which there are.",
        )
    return manifest


def _latest(store: CheckpointStore) -> int:
    walk = store.recover_latest_validated()
    if walk.chosen_id is None:
        if walk.fresh_start:
            raise CheckpointNotFoundError("the store is empty", where=store.url)
        raise DamageError(
            "no checkpoint of this store is whole",
            where="; ".join(f"{number}: {why}" for number, why in walk.skipped[:5]),
            hint=f"'seamark recover {store.url} --explain' shows all.",
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
