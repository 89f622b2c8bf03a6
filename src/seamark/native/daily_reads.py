"""Reading stored state once a day, by processes that take one checkpoint each and end.

Such a process knows nothing of what earlier ones have read, and reading everything would cost as
much as the state. So each object has a moment of the day, given by its random name, and is read by
the first process that stores a checkpoint after that moment.

Tests: ``tests/native/test_daily_reads.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject, is_object_name
from seamark.store import CheckpointStore
from seamark.store.inspection import scan

DAY: Final = 86_400.0
_DIGITS: Final = 8


def due_between(objects: Iterable[SharedObject], since: float, until: float) -> list[SharedObject]:
    """The objects whose moment of the day lies between two times, in seconds."""
    return [
        each
        for each in objects
        if is_object_name(each.name)
        and (until - _moment(each)) // DAY > (since - _moment(each)) // DAY
    ]


def _moment(shared: SharedObject) -> float:
    """Seconds after midnight, spread evenly over the objects of a store."""
    return int(shared.name[-_DIGITS:], 16) / 16**_DIGITS * DAY


def read_due(
    store: CheckpointStore, since: float, until: float, known: Collection[SharedObject] = ()
) -> list[SharedObject]:
    """Read the objects of all checkpoints whose turn has come, but for those that are ``known``.

    The handle remembers which of them are damaged: no later check through it believes those.
    """
    named: dict[SharedObject, None] = {}
    for scanned in scan(store):
        if scanned.manifest is not None:
            named |= dict.fromkeys(scanned.manifest.shared_objects)
    due = [each for each in due_between(named, since, until) if each not in known]
    for each in due:
        with suppress(DamageError):  # remembered
            for _ in store.shared_objects.read(each):
                pass
    return due
