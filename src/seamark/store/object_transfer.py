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
    if target.is_verified(shared) or _is_there(shared, source, target):
        return 0
    try:
        put_object(target.blobs, key_of(shared), counted(source.read(shared)))
    except (KeyExists, Taken):  # another copy of the same store was faster: it is read
        if problem := target.content_problem(shared):
            raise DamageError(problem, where=target.blobs.url, hint=ADVICE) from None
        return 0
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
    if _is_there(shared, source, target):
        return False
    is_taken = target.blobs.take_from(source.blobs, key, shared.size)
    if not is_taken:
        with suppress(KeyExists, Taken):  # somebody else does the same: it is read below
            put_object(target.blobs, key, counted(source.read(shared)))
    if problem := target.content_problem(shared):
        at_fault = source if is_taken and source.content_problem(shared) else target
        target.blobs.delete([key])
        raise DamageError(problem, where=at_fault.blobs.url, hint=ADVICE)
    return not is_taken


def _is_there(shared: SharedObject, source: SharedObjects, target: SharedObjects) -> bool:
    """Whether the target has an object. A damaged one is removed: bytes are only given up for
    better ones."""
    key = key_of(shared)
    if target.content_problem(shared) is None:
        return True
    if target.blobs.stat(key) is None:
        return False
    if problem := source.content_problem(shared):
        raise DamageError(problem, where=source.blobs.url, hint=ADVICE)
    # another copy may have brought it since, and a checkpoint that names it
    if target.content_problem(shared) is None:
        return True
    target.blobs.delete([key])
    return False
