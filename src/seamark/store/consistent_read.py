"""Reading while others prune: what looks gone or damaged is looked at again before it is called so.

A prune moves the boundary in ``owner.json`` before it removes anything. So a reader that misses
something asks for the owner once more: when it has changed, the reader was overtaken and begins
again from a new listing. On a full disk a prune has to remove some manifests first, so those that
were there are looked for as well. When neither has changed, what is missing is missing. Only a
reader that is overtaken time after time gives up, with an error that says nothing about the data.

A rollback first changes the owner and then saves. So a reader of many manifests reads the owner
after them too: an owner from before a rollback would judge a checkpoint from after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from seamark._common.retry import TRIES, pruned_too_fast
from seamark.errors import DamageError
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


class PointedListing(NamedTuple):
    """A listing, and what the pointer said before it."""

    ids: list[int]
    owner: Owner
    named: int | None
    """As :meth:`Manifests.read_pointer` has it."""


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
    meanwhile is not in it. So one without a checkpoint that counts is repeated until two agree.
    The owner is read last, so it knows of every tombstone that is listed.
    """
    before: tuple[list[int], int] | None = None
    for _ in range(TRIES):
        ids = manifests.ids()
        owner = ownership.read()
        newest = max((i for i in ids if i not in owner.lookup.tombstones), default=0)
        if newest > owner.prune_boundary or before == (ids, owner.prune_boundary):
            return Listing(ids, owner)
        before = ids, owner.prune_boundary
    raise pruned_too_fast(manifests.url)


def pointed_listing(manifests: Manifests, ownership: Ownership) -> PointedListing:
    """The listing and the pointer, which shows what a listing has lost.

    The pointer is read first: what was saved before the checkpoint that it names is then listed as
    well. Read last, it could name one that came after the listing, and those between would seem to
    be gone. :class:`Overtaken` when the one that it names is gone because the store has gone on.
    """
    named = manifests.read_pointer()
    ids, owner = listing(manifests, ownership)
    is_lost = bool(named) and named not in ids and standing(owner, named or 0) not in UNCOUNTED
    if is_lost and manifests.read_pointer() != named:
        raise Overtaken
    return PointedListing(ids, owner, named)


def raise_if_overtaken(
    manifests: Manifests, ownership: Ownership, owner: Owner, there: Collection[int] = ()
) -> None:
    """:class:`Overtaken` when the store has changed hands, been pruned or rolled back since.

    That it was pruned is also shown by one of ``there`` that is not there any more: ids that were
    listed, or whose manifests were read.
    """
    if view_of(ownership.read()) != view_of(owner) or manifests.missing(there):
        raise Overtaken


def raise_if_rewritten(ownership: Ownership, owner: Owner) -> None:
    """:class:`Overtaken` when the store was claimed or rolled back since the owner was read.

    To be asked after the manifests were read, also when none of them is missing. A prune is no
    reason: it takes away, but what it leaves counts as before.
    """
    if history_of(ownership.read()) != history_of(owner):
        raise Overtaken


def raise_if_rolled_back(ownership: Ownership, owner: Owner) -> Owner:
    """The owner as it is now; :class:`Overtaken` when the store was rolled back since.

    For a read that may take long, as that of state does. A watched store is claimed for every
    checkpoint, and what was listed before a claim counts as before.
    """
    now = ownership.read()
    if now.timeline != owner.timeline:
        raise Overtaken
    return now


def raise_if_missed(
    listed: Collection[int], parents: Iterable[int | None], load: Callable[[int], object]
) -> None:
    """:class:`Overtaken` when a parent was not listed although it can be loaded.

    A listing takes a while. Of two checkpoints that were saved meanwhile it may hold the second
    without the first, which the second builds on.
    """
    for checkpoint_id in {parent for parent in parents if parent}.difference(listed):
        with suppress(DamageError):
            if load(checkpoint_id) is not None:
                raise Overtaken


def view_of(owner: Owner) -> tuple[object, ...]:
    """The fields of an owner that decide which checkpoints count."""
    return (
        owner.generation,
        owner.timeline,
        owner.prune_boundary,
        owner.kept_below,
        owner.superseded,
        owner.fences,
        owner.voided,
        owner.tombstones,
    )


def history_of(owner: Owner) -> tuple[object, ...]:
    """The fields of an owner that change with every claim and every rollback, and only then."""
    return owner.generation, owner.timeline, owner.fences


def is_pruned(
    manifests: Manifests, ownership: Ownership, checkpoint_id: int, *, was_there: bool = True
) -> bool:
    """Whether a checkpoint is gone for good by now.

    One that ``was_there`` and is not any more is gone, whatever the owner says.
    """
    if standing(ownership.read(), checkpoint_id) in UNCOUNTED:
        return True
    return was_there and bool(manifests.missing([checkpoint_id]))
