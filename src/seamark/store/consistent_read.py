"""Reading while others prune: what looks gone or damaged is looked at again before it is called so.

A prune moves the boundary in ``owner.json`` before it removes anything. So a reader that misses
something asks for the owner once more: when it has changed, the reader was overtaken and begins
again from a new listing; when it has not, what is missing is missing. Only a reader that is
overtaken time after time gives up, with an error that says nothing about the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from seamark._common.retry import TRIES, pruned_too_fast
from seamark.store.manifests import Manifests
from seamark.store.owner import UNCOUNTED, Owner, standing
from seamark.store.ownership import Ownership

T = TypeVar("T")


class Overtaken(Exception):
    """The store was pruned, claimed or rolled back during the read. Read again."""


class Listing(NamedTuple):
    """The ids that a store holds, and an owner that was read after them."""

    ids: list[int]
    owner: Owner


def until_settled(look: Callable[[], T], where: str) -> T:
    """What ``look`` finds, called again as long as it raises :class:`Overtaken`."""
    for _ in range(TRIES):
        try:
            return look()
        except Overtaken:
            continue
    raise pruned_too_fast(where)


def listing(manifests: Manifests, ownership: Ownership) -> Listing:
    """Every id under which there is anything, none of them missed because of a prune.

    A listing takes a while. All that it had found may be pruned when it ends, and what was saved
    meanwhile is not in it: then it is repeated. The owner is read last, so it knows of every
    tombstone that is listed.
    """
    boundary: int | None = None
    for _ in range(TRIES):
        ids = manifests.ids()
        owner = ownership.read()
        newest = max((i for i in ids if i not in owner.lookup.tombstones), default=0)
        if newest > owner.prune_boundary or owner.prune_boundary in (0, boundary):
            return Listing(ids, owner)
        boundary = owner.prune_boundary
    raise pruned_too_fast(manifests.url)


def raise_if_overtaken(ownership: Ownership, owner: Owner) -> None:
    """:class:`Overtaken` when the store has changed hands, been pruned or rolled back since."""
    if view_of(ownership.read()) != view_of(owner):
        raise Overtaken


def view_of(owner: Owner) -> tuple[object, ...]:
    """The fields of an owner that decide which checkpoints count."""
    return (
        owner.generation,
        owner.prune_boundary,
        owner.kept_below,
        owner.superseded,
        owner.fences,
        owner.voided,
        owner.tombstones,
    )


def is_pruned(ownership: Ownership, checkpoint_id: int) -> bool:
    """Whether a checkpoint is gone for good by now."""
    return standing(ownership.read(), checkpoint_id) in UNCOUNTED
