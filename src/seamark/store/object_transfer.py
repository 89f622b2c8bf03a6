"""Bringing shared objects from one store to another: each verified, and none twice.

Tests: ``tests/store/test_taking_over_bytes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from seamark.blobs.conditional_writes import Taken
from seamark.blobs.contract import Buffer, KeyExists
from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject
from seamark.store.shared_objects import ADVICE, SharedObjects, key_of, put_object

Counted = Callable[[Iterable[Buffer]], Iterable[Buffer]]
"""The same pieces, counted as they pass."""


def transfer_object(
    shared: SharedObject,
    source: SharedObjects,
    target: SharedObjects,
    counted: Counted = iter,
) -> int:
    """Copy an object that the target lacks, verified; the bytes that were copied.

    What the target has already is read there, once. A damaged one is replaced.
    :class:`DamageError` when the source has no good one: then the target stays as it is.
    """
    key = key_of(shared)
    if target.is_verified(shared) or target.content_problem(shared) is None:
        return 0
    _make_room(shared, source, target)
    put_object(target.blobs, key, counted(source.read(shared)))
    target.expect([shared], verified=False)
    return shared.size


def take_object(
    shared: SharedObject,
    source: SharedObjects,
    target: SharedObjects,
    counted: Counted = iter,
) -> bool:
    """Have an object in the target too, by the shortest way; whether bytes passed through here.

    On one disk it gets a second name, and in one bucket the service copies it. Whatever the way,
    the object is read in the target afterwards. :class:`DamageError` when it is not right.
    """
    key = key_of(shared)
    target.expect([shared], verified=False)
    if target.content_problem(shared) is None:
        return False
    _make_room(shared, source, target)
    is_taken = target.blobs.take_from(source.blobs, key, shared.size)
    if not is_taken:
        with suppress(KeyExists, Taken):  # somebody else does the same: it is read below
            put_object(target.blobs, key, counted(source.read(shared)))
    if problem := target.content_problem(shared):
        at_fault = source if is_taken and source.content_problem(shared) else target
        target.blobs.delete([key])
        raise DamageError(problem, where=at_fault.blobs.url, hint=ADVICE)
    return not is_taken


def _make_room(shared: SharedObject, source: SharedObjects, target: SharedObjects) -> None:
    """Remove a damaged object: bytes are only given up for better ones."""
    key = key_of(shared)
    if target.blobs.stat(key) is None:
        return
    if problem := source.content_problem(shared):
        raise DamageError(problem, where=source.blobs.url, hint=ADVICE)
    target.blobs.delete([key])
