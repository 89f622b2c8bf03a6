"""A new store and a new timeline that begin at a checkpoint of another store.

The first checkpoint of a fork is an ordinary full one of the same epoch, without sinks: those of
the fork begin with the next epoch, and nothing is finished or taken back in those of the origin.
State is brought over as it is, each object under its own name, by the shortest way that leaves
both stores independent of each other: a second name on one disk, a copy that the service makes in
one bucket, a stream otherwise. Each object is read in the new store before the first checkpoint is
saved, which is the decision. Until then there is no fork. An interrupted one is done again: it goes
on with what is there.

The origin is never changed, but for a pin while it is read.

Tests: ``tests/pipeline/test_fork_store.py``.
"""

from __future__ import annotations

import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from seamark._common.parallel import map_in_threads
from seamark._common.text import default_writer
from seamark.blobs.contract import Buffer
from seamark.capture.checkpoint_contents import Chain, PlacedState, Sizes, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex
from seamark.capture.movers import Contents
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.state_files import is_state
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    OutcomeUnknownError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import SharedObject
from seamark.manifest.origins import ForkOrigin
from seamark.pipeline.declaration.fork_origin import origin_of, without_places
from seamark.pipeline.declaration.recorded_structure import require_readable
from seamark.pipeline.epoch.running_epoch import new_attempt
from seamark.pipeline.epoch.save_with_retry import save_with_retry
from seamark.progress.configuration import config_hash
from seamark.store import CheckpointStore
from seamark.store.copy.plan import refuse_same_place
from seamark.store.index_parts import LOG
from seamark.store.inspection import newest_whole, problems_at_first_sight, pruned_or, writer_of
from seamark.store.object_transfer import take_object
from seamark.store.passing_pins import pinned_while_read

Advance = Callable[[int], None]
"""Called with the number of bytes that have been done since the last call."""

_WRITER: Final = "forking"
_THREADS: Final = 4
_QUERY: Final = "metadata"
"""The file in which Spark keeps the id of a query."""


@dataclass(frozen=True)
class Chosen:
    """A checkpoint that can be forked."""

    manifest: CheckpointManifest
    origin: ForkOrigin
    """What the fork remembers of it."""
    skipped: list[tuple[int, str]] = field(default_factory=list)
    """Newer ones that are damaged, and why."""

    def first(self) -> CheckpointManifest:
        """The first checkpoint of the fork as far as it can be compared with a pipeline."""
        return _drafted(self.manifest, self.origin, 1)


@dataclass(frozen=True, kw_only=True)
class Forked:
    """What a fork has become."""

    manifest: CheckpointManifest
    chosen: Chosen
    objects: int = 0
    size: int = 0
    """Bytes of its state that are in objects."""
    streamed: int = 0
    """Those of them that passed through this process."""


def choose(
    store: CheckpointStore, checkpoint_id: int | None = None, *, read_data: bool = False
) -> Chosen:
    """The checkpoint of that id, or the newest one that is whole.

    Only ``read_data`` looks at the bytes of its state. :class:`CheckpointNotFoundError`,
    :class:`DamageError`; :class:`RefusedError` for one that no pipeline has made.
    """
    walk, newest = newest_whole(store, read_data=read_data)
    manifest = newest if checkpoint_id is None else store.load_by_id(checkpoint_id)
    if manifest is None:
        if checkpoint_id is None and walk.broken:
            why = "; ".join(f"checkpoint {number}: {why}" for number, why in walk.broken[:5])
            raise DamageError("no checkpoint of the origin is whole", where=f"{store.url}: {why}")
        what = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id}"
        raise CheckpointNotFoundError(
            f"the origin has {what}",
            where=store.url,
            hint=f"'seamark list {shlex.quote(store.url)}' shows which there are.",
        )
    number = manifest.checkpoint_id
    if checkpoint_id is not None and (damage := problems_at_first_sight(store, number)):
        raise pruned_or(store, number, _not_whole(store, number, "; ".join(damage)))
    _require_of_pipeline(manifest, store.url)
    require_readable(manifest)
    skipped = walk.broken if checkpoint_id is None else []
    return Chosen(manifest, origin_of(store.url, manifest, newest), skipped)


def choose_again(store: CheckpointStore, chosen: Chosen, error: SeamarkError) -> Chosen:
    """Another one than the newest that was chosen, which could not be forked; or its error.

    After damage all bytes are read: an older one may be whole. After a prune a newer one is.
    """
    again = choose(store, read_data=isinstance(error, DamageError))
    if again.manifest.checkpoint_id == chosen.manifest.checkpoint_id:
        raise error
    return again


def _not_whole(store: CheckpointStore, number: int, why: str) -> DamageError:
    return DamageError(
        f"checkpoint {number} is not whole, so it was not forked",
        where=f"{store.url}: {why}",
        hint="Choose another one.",
    )


def _require_of_pipeline(manifest: CheckpointManifest, url: str) -> None:
    number = manifest.checkpoint_id
    if manifest.native is not None:
        raise RefusedError(
            f"checkpoint {number} is a snapshot of a directory that Spark keeps by itself",
            where=url,
            hint="Only checkpoints of a pipeline can be forked. 'seamark spark restore' makes a "
            "directory of it, and Pipeline(…, adopt=…) goes on from that.",
        )
    if not manifest.is_ours or manifest.structure is None or manifest.leaves is None:
        raise RefusedError(f"checkpoint {number} was not made by a pipeline", where=url)


def first_of(store: CheckpointStore) -> CheckpointManifest | None:
    """The newest checkpoint of what is to become a fork, or is one; None while it is empty.

    :class:`RefusedError` when the store holds something that is not a fork, :class:`DamageError`
    when nothing of it can be used.
    """
    walk, newest = newest_whole(store, read_data=False)
    if walk.fresh_start:
        timeline = store.owner().timeline
        if timeline and store.plans.epochs_after(timeline, 0):
            raise _not_empty(store, "a pipeline has begun its first epoch there")
        return None
    if newest is None and walk.broken:
        why = "; ".join(f"checkpoint {number}: {why}" for number, why in walk.broken[:5])
        raise DamageError("no checkpoint of this store can be used", where=f"{store.url}: {why}")
    if newest is None:
        raise _not_empty(store, "its checkpoints were given up")
    if newest.fork is None:
        raise _not_empty(store, f"checkpoint {newest.checkpoint_id} does not belong to a fork")
    return newest


def _not_empty(store: CheckpointStore, why: str) -> RefusedError:
    return RefusedError(
        "a fork begins in an empty store",
        where=f"{store.url}: {why}",
        hint="Nothing was changed. Choose a new place for the fork.",
    )


def fork_store(
    source: CheckpointStore,
    target: CheckpointStore,
    chosen: Chosen,
    *,
    pipeline: str | None = None,
    sizes: Sizes | None = None,
    patience: float = 60.0,
    advance: Advance = lambda _: None,
) -> Forked:
    """Make an empty store the fork of a checkpoint, and give back the claim on it.

    Repeat it after an interruption. :class:`RefusedError` when the store is not empty,
    :class:`FencedError` when somebody uses it, :class:`DamageError` when the checkpoint turns out
    not to be whole. Then nothing is decided.
    """
    refuse_same_place(source, target)
    take_over = _require_free(target)
    if first_of(target) is not None:
        raise _not_empty(target, "it is a fork already")
    number = chosen.manifest.checkpoint_id
    with pinned_while_read(source, number, "fork") as renew:
        try:
            chain = Chain.load(source, chosen.manifest)
            if chain.index is None:
                raise RefusedError(
                    f"checkpoint {number} was made by an earlier Seamark",
                    where=source.url,
                    hint="Run one epoch of its pipeline first: that checkpoint can be forked.",
                )
            writer = f"{default_writer()} {_WRITER}"
            target.claim(writer=writer, pipeline=pipeline, take_over=take_over)
            try:
                if first_of(target) is not None:
                    raise _not_empty(target, "another process has made it a fork meanwhile")
                streamed = _take_objects(source, target, chain.index, renew, advance)
                saved = _save(target, chosen, chain, sizes or Sizes(), patience)
            finally:
                target.release()
        except DamageError as error:
            raise pruned_or(source, number, error) from None
    objects = chain.index.shared_objects
    return Forked(
        manifest=saved,
        chosen=chosen,
        objects=len(objects),
        size=sum(each.size for each in objects),
        streamed=streamed,
    )


def _require_free(target: CheckpointStore) -> bool:
    """Whether what a fork that died has left may be taken over; two that run fence each other.

    :class:`FencedError` when a writer of another kind uses the store.
    """
    owner, alive = writer_of(target)
    is_fork = f" {_WRITER} " in owner.writer
    if alive is not False and not is_fork:
        raise FencedError(
            "the store of the fork is in use by another writer",
            where=f"{target.url} was claimed by generation {owner.generation} ({owner.writer}).",
            hint="Nothing was written. Choose a new place for the fork.",
        )
    return is_fork


def _take_objects(
    source: CheckpointStore,
    target: CheckpointStore,
    index: FileIndex,
    renew: Callable[[], None],
    advance: Advance,
) -> int:
    """Bring over every object that the index names; the bytes that passed through here."""

    def counted(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        for piece in pieces:
            renew()
            yield piece

    def take(shared: SharedObject) -> int:
        renew()
        passed = take_object(shared, source.shared_objects, target.shared_objects, counted)
        advance(shared.size)
        return shared.size if passed else 0

    return sum(map_in_threads(take, index.shared_objects, _THREADS, "seamark-fork"))


def _save(
    target: CheckpointStore, chosen: Chosen, chain: Chain, sizes: Sizes, patience: float
) -> CheckpointManifest:
    """Save the first checkpoint: the decision."""
    uploads = Uploads(target.shared_objects)
    index = chain.index or FileIndex()
    try:
        placed = place(_captured(chain, index), sizes, uploads, index)
        generation, timeline = target.shared_objects.generation, target.owner().timeline
        draft = _drafted(chosen.manifest, chosen.origin, target.next_id())
        manifest = _with_state(draft, placed, new_attempt(generation, timeline))
        return save_with_retry(target, manifest, placed.chunks, patience)
    except OutcomeUnknownError:
        raise
    except Exception:
        uploads.discard()
        raise


def _captured(chain: Chain, index: FileIndex) -> Captured:
    """What the fork's first checkpoint holds itself: what the chain's checkpoints hold."""
    files: dict[str, Contents] = {label: {} for label in index.operators}
    for path, data in chain.small.items():
        label = index.label_of(path) if is_state(path) else LOG
        files.setdefault(label, {})[path] = data
    # Spark stops a query when another one of the same id starts
    files.setdefault(LOG, {})[_QUERY] = json.dumps({"id": str(uuid.uuid4())}).encode()
    return Captured(files=files, is_full=True, versions=list(chain.manifests[-1].state_versions))


def _drafted(
    chosen: CheckpointManifest, origin: ForkOrigin, checkpoint_id: int
) -> CheckpointManifest:
    """The first checkpoint of a fork without its state.

    What a checkpoint says about sinks, other histories and its own making stays behind.
    """
    structure = without_places(chosen.structure or {})
    return CheckpointManifest.new(
        checkpoint_id,
        epoch=chosen.epoch,
        timestamp_ms=time.time_ns() // 1_000_000,
        source_offsets=chosen.source_offsets,
        table_offsets=chosen.table_offsets,
        source_names=chosen.source_names,
        batch=chosen.batch,
        state_versions=chosen.state_versions,
        state_partitions=chosen.state_partitions,
        watermark=chosen.watermark,
        source_watermarks=chosen.source_watermarks,
        pipeline_hash=config_hash(structure),
        fork=msgspec.to_builtins(origin),
        structure=structure,
        fingerprint=chosen.fingerprint,
        next_watermark=chosen.next_watermark,
        leaves=chosen.leaves,
        gaps=list(chosen.gaps) or None,
        spark_version=chosen.spark_version,
        source_ids=chosen.source_ids,
        source_servers=chosen.source_servers,
        source_latest=chosen.source_latest,
        source_times=chosen.source_times,
    )


def _with_state(draft: CheckpointManifest, placed: PlacedState, attempt: str) -> CheckpointManifest:
    return draft.replace(
        operator_states=placed.operator_states,
        size_bytes=placed.size,
        attempt=attempt,
        added_bytes=sum(each.size for each in placed.shared_objects) or None,
        restore_bytes=placed.restore_size,
        shared_objects=[list(each) for each in placed.shared_objects] or None,
    )
