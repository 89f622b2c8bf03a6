"""Copying checkpoints from one store to another, of any backend to any: verified and resumable.

A checkpoint keeps its id, its timeline and its bytes. The order of writes in the target is:
``owner.json`` (so that it covers what arrives), the plans of epochs, then for each checkpoint,
oldest first, its sidecar, its partitioned state, its shared objects, its manifest, the pointer. An
interrupted copy is finished by copying again.

Tests: ``tests/store/test_copying.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from seamark._common.text import default_writer
from seamark.blobs.conditional_writes import Taken, create_once
from seamark.blobs.contract import Buffer, KeyExists, TagMismatch
from seamark.blobs.streams import PIECE, small_or_stream
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.state import ReadStates
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.consistent_read import is_pruned
from seamark.store.copy.decisions import CopyItem, identity, owner_for, translated
from seamark.store.copy.plan import CopyPlan, CopyResult, plan_copy
from seamark.store.manifests import StoredManifest, Tombstone
from seamark.store.object_transfer import transfer_object
from seamark.store.owner import Owner, with_pins
from seamark.store.parts import StoreParts
from seamark.store.validation import CheckpointKind, KnownCheckpoints

_THERE: Final = ("copied", "there already")


class SourceRolledBack(StoreUnavailableError):
    """The target may hold a part of a history that the source has given up. Copy again."""


def copy_checkpoints(
    source: CheckpointStore,
    target: CheckpointStore,
    plan: CopyPlan | None = None,
    *,
    advance: CopyCallback | None = None,
) -> list[CopyResult]:
    """Copy what a plan says, by default all checkpoints that count; what became of each.

    Every byte is verified on its way and once more in the target. A pipeline that is started on
    the target goes on from there. Repeat it after an interruption, or to bring back shared objects
    that were lost or damaged in the target: those that are there already are read.
    :class:`FencedError` when somebody claims the target during the copy,
    :class:`SourceRolledBack` when the source is rolled back: copy again.

    >>> from seamark import CheckpointManifest, open_store
    >>> with open_store("memory://") as here, open_store("memory://") as there:
    ...     _ = here.save(CheckpointManifest.new(1, epoch=1))
    ...     [(each.checkpoint_id, each.outcome) for each in copy_checkpoints(here, there)]
    [(1, 'copied')]
    """
    if plan is None:
        plan = plan_copy(source, target)
    if advance is None:
        advance = _silently
    if not plan.items and not plan.unusable and not plan.begun:
        return []  # an empty store makes no store of another place
    token = f"{default_writer()} copying {uuid.uuid4().hex[:8]}"
    target._parts.ownership.probe()
    mine = _prepare_target(target, plan, token)
    # before the checkpoints: a start on a newest one without its plan would plan the epoch anew
    source.plans.copy_to(target.plans, mine.timeline)
    _refuse_rolled_back(source, plan)
    total = float(plan.size)
    done: dict[int, CopyResult] = {}
    states = ReadStates()
    for checkpoint_id, item in plan.items.items():
        if checkpoint_id not in plan.arriving:
            done[checkpoint_id] = _complete(source, target, item, advance)
            continue
        broken = item.parent_id is not None and _is_missing(done.get(item.parent_id))
        if broken:
            why = f"it builds on {item.parent_id}, which could not be copied"
            done[checkpoint_id] = _not_copied(source, checkpoint_id, why)
            advance(item.size)
            continue
        progress = CopyProgress(advance, states)
        replaceable = checkpoint_id in plan.replaceable
        result = _copy_one(source, target, checkpoint_id, mine, progress, replaceable=replaceable)
        total += max(result.size - item.size, 0)
        advance(max(result.size, item.size) - progress.bytes, total=total)
        done[checkpoint_id] = result
    _guard(target, mine)
    source.plans.copy_to(target.plans, mine.timeline)  # those that came meanwhile
    _refuse_rolled_back(source, plan)
    written = [i for i, result in done.items() if result.outcome == "copied"]
    for checkpoint_id in _pruned_since(target, written):
        why = "pruned in the target while it was being copied"
        done[checkpoint_id] = CopyResult(checkpoint_id, "pruned there", why=why)
    present = {i for i, result in done.items() if result.outcome in _THERE}
    pins = {name: plan.source.pins[name] for name, i in plan.pins.items() if i in present}
    if pins:
        # all in one write: owner.json is as large as they are many
        target._parts.ownership.amend(lambda now: with_pins(now, pins))
    return sorted([*plan.unusable, *done.values()], key=lambda result: result.checkpoint_id)


def take_over_target(
    source: CheckpointStore, target: CheckpointStore, checkpoint_id: int | None
) -> None:
    """Fence whoever has claimed the target and release it, unless the copy would be refused."""
    owner = target.owner()
    if owner.generation and not owner.released:
        plan_copy(source, target, checkpoint_id, take_over=True)
        target.claim(writer=f"{default_writer()} copy")
        target._parts.ownership.release()


def _silently(by: float, *, total: float | None = None) -> None:
    """Nobody is watching."""


def _is_missing(result: CopyResult | None) -> bool:
    return result is None or result.outcome in ("damaged", "gone")


def _prepare_target(target: CheckpointStore, plan: CopyPlan, token: str) -> Owner:
    def changed(now: Owner) -> Owner:
        if (now.generation, now.writer) != (plan.target.generation, plan.target.writer):
            raise _claimed_meanwhile(target, now)
        return owner_for(now, plan.copying, token)

    return target._parts.ownership.amend(changed)


def _claimed_meanwhile(target: CheckpointStore, now: Owner) -> FencedError:
    return FencedError(
        "the target was claimed by another writer while it was being copied to",
        where=f"{target.url} belongs to generation {now.generation} ({now.writer}).",
        hint="What was copied so far is whole. Copy again when that writer has stopped.",
    )


def _guard(target: CheckpointStore, mine: Owner) -> None:
    now = target.owner()
    if (now.generation, now.writer) != (mine.generation, mine.writer):
        raise _claimed_meanwhile(target, now)


def _refuse_rolled_back(source: CheckpointStore, plan: CopyPlan) -> None:
    """What is left of a history that was given up need not be all of it: plans go with a prune."""
    before, now = plan.source, source.owner()
    if before.timeline in ("", now.timeline):
        return  # claimed for the first time, at most
    raise SourceRolledBack(
        "the source was rolled back while it was being copied",
        where=f"{source.url} is at timeline {now.timeline}, and was at {before.timeline}",
        hint="The target may hold a part of what was given up: do not start a pipeline on it. "
        "Copy again; that takes over the rollback.",
    )


def _copy_one(
    source: CheckpointStore,
    target: CheckpointStore,
    checkpoint_id: int,
    mine: Owner,
    progress: CopyProgress,
    *,
    replaceable: bool,
) -> CopyResult:
    try:
        stored = source._parts.manifests.read(checkpoint_id)
        if not isinstance(stored, StoredManifest):
            raise DamageError("its manifest is gone")
        _refuse_unusable(stored.manifest)
        there = target._parts.manifests.read(checkpoint_id)
        known = there.manifest if isinstance(there, StoredManifest) else None
        if known is not None and identity(known) == identity(stored.manifest):
            # only its sinks have changed, or it has lost objects
            named = known.state_object
            size = _copy_objects(source, target, stored.manifest, progress)
        elif known is not None and not replaceable:
            raise written_meanwhile(target._parts, checkpoint_id)
        else:
            guard = partial(_guard, target, mine)
            guard()
            named, size = write_sidecar(
                source._parts, target._parts, stored.manifest, progress, guard
            )
            size += source._parts.partitioned.copy(
                stored.manifest, target._parts.partitioned, progress.states
            )
            size += _copy_objects(source, target, stored.manifest, progress)
        data = translated(stored, named)
        with target._parts.blobs.exclusive():
            _guard(target, mine)
            decide(target._parts, checkpoint_id, data, there)
            target._parts.manifests.advance_pointer(checkpoint_id)
    except (DamageError, CheckpointNotFoundError) as error:
        return _not_copied(source, checkpoint_id, error.what)
    return CopyResult(checkpoint_id, "copied", size + len(data))


def _complete(
    source: CheckpointStore, target: CheckpointStore, item: CopyItem, advance: CopyCallback
) -> CopyResult:
    """Bring back what a checkpoint that is there already has lost of its shared objects."""
    progress = CopyProgress(advance)
    try:
        stored = source._parts.manifests.read(item.checkpoint_id)
        if not isinstance(stored, StoredManifest):
            raise DamageError("its manifest is gone")
        size = _copy_objects(source, target, stored.manifest, progress)
    except DamageError as error:
        return _not_copied(source, item.checkpoint_id, error.what)
    if size:
        return CopyResult(item.checkpoint_id, "copied", size)
    return CopyResult(item.checkpoint_id, "there already", item.size)


def _copy_objects(
    source: CheckpointStore,
    target: CheckpointStore,
    manifest: CheckpointManifest,
    progress: CopyProgress,
) -> int:
    """Copy the shared objects that the target lacks; bytes copied."""
    shared = source._parts.shared, target._parts.shared
    return sum(transfer_object(each, *shared, progress.counted) for each in manifest.shared_objects)


def _not_copied(source: CheckpointStore, checkpoint_id: int, why: str) -> CopyResult:
    """Damaged, unless it was pruned in the source while it was being copied."""
    if is_pruned(source._parts.manifests, source._parts.ownership, checkpoint_id):
        return CopyResult(checkpoint_id, "gone", why="pruned while it was being copied")
    return CopyResult(checkpoint_id, "damaged", why=why)


def _refuse_unusable(manifest: CheckpointManifest) -> None:
    """What recovery would pass over is not worth a copy."""
    problems = (*unrestorable(manifest, manifest.state_bytes), *unsafe_names(manifest))
    if problems:
        raise DamageError("; ".join(problems))


def _pruned_since(target: CheckpointStore, written: list[int]) -> list[int]:
    """Read back all that was written, each byte once; those that the target has pruned since."""
    owner, known = target.owner(), KnownCheckpoints()
    parts = target._parts
    pruned = []
    for checkpoint_id in written:
        examined = parts.validator.examine(checkpoint_id, owner, read_state="once", known=known)
        if examined.kind is CheckpointKind.CHECKPOINT:
            continue
        if is_pruned(parts.manifests, parts.ownership, checkpoint_id):
            pruned.append(checkpoint_id)
        else:
            raise DamageError(
                f"checkpoint {checkpoint_id} was copied and does not read back",
                where=f"{target.url}: {'; '.join(examined.result.damage)}",
                hint="Is the target's disk sound? Look with 'seamark verify'.",
            )
    return pruned


class CopyCallback(Protocol):
    """Called with the bytes that are done, and with ``total`` when more turn out to be needed."""

    def __call__(self, by: float, *, total: float | None = None) -> None: ...


class CopyProgress:
    """Counts the bytes of one checkpoint as they pass, and reports them."""

    def __init__(self, advance: CopyCallback, states: ReadStates | None = None) -> None:
        self._advance = advance
        self.bytes = 0
        self.states = ReadStates() if states is None else states
        """Partitioned state that was copied so far, for this checkpoint or others."""

    def counted(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """The same pieces; each counts when the next one is asked for."""
        for piece in pieces:
            yield piece
            self.bytes += len(piece)
            self._advance(len(piece))


def write_sidecar(
    source: StoreParts,
    target: StoreParts,
    manifest: CheckpointManifest,
    progress: CopyProgress,
    guard: Callable[[], None],
) -> tuple[str | None, int]:
    """Copy a sidecar, verified before it appears; the name that its manifest must give, and bytes.

    The name is None when the sidecar is where every reader looks first. What an earlier try has
    left is written again. ``guard`` raises when the target is somebody else's by now: then it may
    not be left by a try.
    """
    if not source.sidecars.holds_sidecar(manifest):
        return None, 0
    counted = progress.counted(_verified(source, manifest))
    usual = target.layout.state(manifest.checkpoint_id)
    limit = target.blobs.max_put
    if limit is None:
        with target.blobs.exclusive():
            guard()
            target.blobs.delete([usual])  # no manifest that counts is under this id
        try:
            target.blobs.create_stream(usual, counted)
        except KeyExists:
            guard()
            raise written_meanwhile(target, manifest.checkpoint_id) from None
        return None, progress.bytes
    data = small_or_stream(counted, limit)
    if isinstance(data, bytes):
        try:
            create_once(target.blobs, usual, data, max(len(data), limit))
            return None, progress.bytes
        except Taken:
            pass  # an unfinished save of somebody else's: left alone
    if not manifest.is_ours:
        # a name of its own would make another system's manifest look like one of ours
        guard()
        target.blobs.delete([usual])
        target.blobs.create_stream(usual, [data] if isinstance(data, bytes) else data)
        return None, progress.bytes
    # the same in every try, and nobody else's
    token = identity(manifest).hex()[:16]
    key = target.layout.state_in_parts(manifest.checkpoint_id, manifest.generation, token)
    target.blobs.create_stream(key, [data] if isinstance(data, bytes) else data)
    return key, progress.bytes


def _verified(source: StoreParts, manifest: CheckpointManifest) -> Iterator[Buffer]:
    """The bytes of a sidecar; :class:`DamageError` at the latest after the last one."""
    if manifest.is_ours:
        yield from source.sidecars.verified_stream(manifest)
        return
    # another system may have hashed in more than one way: only reading it whole shows which
    if problem := source.sidecars.problem(manifest):
        raise DamageError(problem)
    stream = source.blobs.stream(source.sidecars.key_of(manifest), PIECE)
    if stream is None:
        raise DamageError("its state is gone")
    yield from stream


def decide(
    target: StoreParts, checkpoint_id: int, data: bytes, there: StoredManifest | Tombstone | None
) -> None:
    """Show the manifest, in place of exactly what was there before."""
    try:
        target.manifests.put(checkpoint_id, data, there.tag if there is not None else None)
    except (Taken, TagMismatch):
        raise written_meanwhile(target, checkpoint_id) from None
    target.manifests.forget(checkpoint_id)


def written_meanwhile(target: StoreParts, checkpoint_id: int) -> FencedError:
    """Somebody else has decided that id since it was looked at."""
    return FencedError(
        f"checkpoint {checkpoint_id} was written by another writer while it was being copied",
        where=f"{target.blobs.url}/{target.layout.manifest(checkpoint_id)}",
        hint="What was copied so far is whole. Copy again when that writer has stopped.",
    )
