"""Looking at two stores before a copy between them: what there is to do. Writes nothing.

Tests: ``tests/store/test_copying.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    InvalidInputError,
    RefusedError,
)
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.consistent_read import (
    listing,
    raise_if_missed,
    raise_if_overtaken,
    raise_if_rewritten,
    until_settled,
)
from seamark.store.copy.decisions import (
    NEW_STORE,
    CopyItem,
    CopyScope,
    TargetCheckpoint,
    left_behind,
    must_write,
    pins_to_copy,
    refuse_other_history,
    refuse_other_objects,
    with_chains,
)
from seamark.store.inspection import writer_of
from seamark.store.layout import OWNER_KEY
from seamark.store.manifest_scan import covering_owner
from seamark.store.manifests import StoredManifest
from seamark.store.owner import UNCOUNTED, Owner, Standing, arrived_too_late, standing

Outcome = Literal["copied", "there already", "pruned there", "damaged", "gone"]


@dataclass(frozen=True)
class CopyResult:
    """What became of one checkpoint."""

    checkpoint_id: int
    outcome: Outcome
    size: int = 0
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class CopyPlan:
    """What a copy is going to do. Made without writing anything."""

    source: Owner
    target: Owner
    items: dict[int, CopyItem]
    """Everything that the target is to hold, by id, ascending."""
    arriving: list[int]
    """Those whose manifest is to be written or brought up to date."""
    unusable: list[CopyResult]
    """Those that are damaged or gone in the source, or pruned in the target."""
    copying: CopyScope
    replaceable: frozenset[int] = frozenset()
    """Ids of the target that hold what a fenced writer has left."""
    pins: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    """Epochs that started before there was a checkpoint: their plans are all there is."""

    @property
    def size(self) -> int:
        """Bytes to copy, according to the manifests."""
        return sum(self.items[i].size for i in self.arriving)


def plan_copy(
    source: CheckpointStore,
    target: CheckpointStore,
    checkpoint_id: int | None = None,
    *,
    pins: bool = False,
    take_over: bool = False,
) -> CopyPlan:
    """What has to be copied: one checkpoint with all that it builds on, or all that count.

    :class:`FencedError` when a writer uses the target, unless ``take_over``;
    :class:`RefusedError` when it holds another history, :class:`DamageError` when the one that
    was asked for is damaged.
    """
    refuse_same_place(source, target)
    there_owner, alive = writer_of(target)
    if alive is not False and not take_over:
        raise _in_use(target, there_owner)
    # first: what another copy brings meanwhile is of the source, and would not be listed there
    there = _target_contents(target, there_owner)
    owner, known, unusable, gone = until_settled(
        partial(_readable, source, checkpoint_id), source.url
    )
    if checkpoint_id is None:
        chosen = [i for i in known if standing(owner, i) is Standing.CURRENT]
        chosen = [i for i in chosen if standing(there_owner, i) is not Standing.PRUNED]
    else:
        chosen = [_required(source, owner, checkpoint_id, known, unusable)]
        unusable = []
    items = {i: known[i] for i in with_chains(chosen, known)}
    refuse_other_history(owner, there_owner, known, there, gone)
    refuse_other_objects(items.values(), there)
    _refuse_damaged(target, items, there)
    arriving = [i for i in items if must_write(items[i], there.get(i))]
    if checkpoint_id is None:
        unusable += [
            CopyResult(i, "pruned there", why="pruned in the target, and not brought back")
            for i in known
            if i not in items and standing(owner, i) is Standing.CURRENT
        ]
    counting = [i for i in known if standing(owner, i) is Standing.CURRENT]
    late = [
        i for i, target_checkpoint in there.items() if target_checkpoint.too_late and i not in items
    ]
    begun = 0 if counting or unusable else _begun(source, owner, there_owner, there)
    copying = CopyScope(
        source=owner,
        items=list(items.values()),
        arriving=arriving,
        late=late if arriving else [],
        has_newest=bool(counting) and counting[-1] in items,
        left_behind=left_behind(owner, there_owner, known, there),
        begins=bool(begun),
    )
    wanted_pins = pins_to_copy(owner, there_owner, items) if pins else {}
    named = {name: pin.checkpoint_id for name, pin in wanted_pins.items()}
    replaceable = frozenset(i for i in items if (t := there.get(i)) and t.too_late)
    return CopyPlan(
        source=owner,
        target=there_owner,
        items=items,
        arriving=arriving,
        unusable=unusable,
        copying=copying,
        replaceable=replaceable,
        pins=named,
        begun=begun,
    )


def _begun(
    source: CheckpointStore, owner: Owner, target: Owner, there: Mapping[int, object]
) -> int:
    """How many plans a source has whose history has no checkpoint yet.

    A sink may have written their rows.
    """
    begun = len(source.plans.epochs_after(owner.timeline, 0)) if owner.timeline else 0
    if any(standing(owner, i) is Standing.CURRENT for i in there):
        return 0  # the source has lost these, so its plans do not follow them
    if begun and not there and target.timeline not in ("", owner.timeline):
        raise RefusedError(
            "the target has started a history of its own",
            where=f"timeline {target.timeline}, and the source is at {owner.timeline}",
            hint=NEW_STORE,
        )
    return begun


def refuse_same_place(source: CheckpointStore, target: CheckpointStore) -> None:
    """:class:`InvalidInputError` when two stores are one, or one lies inside the other."""
    here, there = source.backend.address, target.backend.address
    same = source.backend is target.backend or (here and here == there)
    if same or _is_one_object(source, target, here, there):
        raise InvalidInputError("source and target are the same store", where=source.url)
    if here and there and (here[: len(there)] == there or there[: len(here)] == here):
        inner, outer = ("source", "target") if len(here) > len(there) else ("target", "source")
        raise InvalidInputError(
            f"the {inner} is inside the {outer}",
            where=f"{source.url} to {target.url}",
            hint="Nothing was copied. Each store needs a place of its own: what tidies the one "
            "could remove parts of the other.",
        )


def _is_one_object(
    source: CheckpointStore,
    target: CheckpointStore,
    here: tuple[str, ...],
    there: tuple[str, ...],
) -> bool:
    """Whether two services with the same bucket and folder show one and the same object.

    Then they are two names of one service, which only its operator can distinguish.
    """
    if len(here) < 3 or here[:1] != there[:1] or here[2:] != there[2:]:
        return False
    for key in (OWNER_KEY, source._parts.layout.pointer):
        one, other = source.backend.stat(key), target.backend.stat(key)
        if one is not None or other is not None:
            return one is not None and one == other
    return False


def _in_use(target: CheckpointStore, owner: Owner) -> FencedError:
    return FencedError(
        "the target is in use by another writer",
        where=f"{target.url} was claimed by generation {owner.generation} ({owner.writer}).",
        hint="Nothing was copied. Stop that writer, or copy to a store of its own. If it is "
        "dead for certain, 'seamark copy --take-over' claims the target and goes on.",
    )


def _readable(
    source: CheckpointStore, required_id: int | None
) -> tuple[Owner, dict[int, CopyItem], list[CopyResult], set[int]]:
    """The owner of the source, its checkpoints by id, those that cannot be read, and those that
    were pruned after they had been listed.

    :class:`Overtaken` when the newest checkpoint or the required one was pruned in the meantime,
    or the source was claimed or rolled back.
    """
    parts = source._parts
    listed, owner = listing(parts.manifests, parts.ownership)
    items: dict[int, CopyItem] = {}
    unusable: list[CopyResult] = []
    gone: set[int] = set()
    for checkpoint_id, stored in parts.manifests.read_many(
        [i for i in listed if standing(owner, i) not in UNCOUNTED]
    ):
        if stored is None:
            gone.add(checkpoint_id)
        elif isinstance(stored, DamageError):
            if standing(owner, checkpoint_id) is Standing.CURRENT:
                unusable.append(CopyResult(checkpoint_id, "damaged", why=stored.what))
        elif isinstance(stored, StoredManifest):
            # an owner.json that is too old ends the copy: it would bring back what was rolled back
            covering, odd = covering_owner(parts.ownership, owner, stored)
            if odd is None and arrived_too_late(covering, stored.manifest):
                continue
            try:
                if odd is not None:
                    raise odd
                items[checkpoint_id] = CopyItem.of(stored)
            except DamageError as error:
                if standing(owner, checkpoint_id) is Standing.CURRENT:
                    unusable.append(CopyResult(checkpoint_id, "damaged", why=error.what))
    raise_if_rewritten(parts.ownership, owner)
    newest_gone = max(gone, default=0) > max(items, default=0)
    if newest_gone or unusable or (required_id is not None and not _is_whole(required_id, items)):
        raise_if_overtaken(parts.manifests, parts.ownership, owner, listed)
    known = {*items, *(result.checkpoint_id for result in unusable)}
    raise_if_missed(known, (item.parent_id for item in items.values()), source.load_by_id)
    return owner, items, unusable, gone


def _is_whole(required_id: int, items: dict[int, CopyItem]) -> bool:
    """Whether a checkpoint and all that it builds on could be read."""
    at = required_id
    while at in items:
        parent = items[at].parent_id
        if parent is None or parent >= at:
            return parent is None
        at = parent
    return False


def _required(
    source: CheckpointStore,
    owner: Owner,
    checkpoint_id: int,
    known: dict[int, CopyItem],
    unusable: list[CopyResult],
) -> int:
    """The id that was asked for, when it and all that it builds on can be read."""
    at: int | None = checkpoint_id
    while at is not None:
        if at not in known:
            why = next((result.why for result in unusable if result.checkpoint_id == at), None)
            if why is None and at == checkpoint_id:
                raise CheckpointNotFoundError(
                    f"there is no checkpoint {checkpoint_id}", where=source.url
                )
            raise DamageError(
                f"checkpoint {checkpoint_id} is not whole, so it was not copied",
                where=f"{source.url}: {at}: {why or 'gone'}",
                hint="Nothing was copied. Choose another one.",
            )
        at = known[at].parent_id
    if standing(owner, checkpoint_id) is Standing.SUPERSEDED:
        raise RefusedError(
            f"checkpoint {checkpoint_id} was given up by a rollback, so no start would use it",
            where=source.url,
            hint="Choose one that counts.",
        )
    return checkpoint_id


def _target_contents(target: CheckpointStore, owner: Owner) -> dict[int, TargetCheckpoint]:
    """What the target holds, by id."""
    there: dict[int, TargetCheckpoint] = {}
    for checkpoint_id, stored in target._parts.manifests.read_many(target.list_ids()):
        if isinstance(stored, StoredManifest):
            too_late = arrived_too_late(owner, stored.manifest)
            try:
                there[checkpoint_id] = TargetCheckpoint(CopyItem.of(stored), too_late)
            except DamageError:
                there[checkpoint_id] = TargetCheckpoint(None)
        elif isinstance(stored, DamageError):
            there[checkpoint_id] = TargetCheckpoint(None)
    return there


def _refuse_damaged(
    target: CheckpointStore, items: Collection[int], there: dict[int, TargetCheckpoint]
) -> None:
    for checkpoint_id, target_checkpoint in there.items():
        if target_checkpoint.item is None and checkpoint_id in items:
            raise DamageError(
                f"checkpoint {checkpoint_id} of the target is damaged",
                where=target.url,
                hint="Nothing was copied. Remove it there, or copy to a store of its own.",
            )
