"""Removing, verifying and copying state checkpoints, with everything that they refer to.

Tests: ``tests/state/test_conformance.py``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from seamark import limits
from seamark._common.parallel import map_in_threads
from seamark.blobs.conditional_writes import create_once
from seamark.blobs.contract import Entry, KeyExists, unfinished
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.state.catalog import parsed_id
from seamark.state.chains import Link, lineage, links_of, newest_first
from seamark.state.layout import CheckpointId, CheckpointManifestV2, CheckpointPaths
from seamark.state.object_looks import LARGEST_PACK, ObjectRead, SeenObject, read_pack, seen_pack
from seamark.state.read_states import ReadStates
from seamark.state.reader import key_of, stream_link
from seamark.state.removal_mark import RemovalMark
from seamark.state.removals import StatePlace, news, objects_of, readable, remove
from seamark.state.resolution import Resolution, resolutions
from seamark.state.verdicts import Verdicts


@dataclass(frozen=True)
class StateVerification:
    """What was found in one state checkpoint and everything that it builds on."""

    checkpoint_id: CheckpointId
    issues: list[str] = field(default_factory=list)
    """What is wrong; of very many things the first ones, and the number of the others."""
    resolution: Resolution = field(default_factory=Resolution, repr=False, compare=False)
    """What it consists of; nothing when that is what is wrong."""

    @property
    def objects(self) -> int:
        """How many objects it consists of."""
        return self.resolution.objects

    @property
    def size_bytes(self) -> int:
        """How many bytes these have."""
        return self.resolution.size_bytes

    @property
    def valid(self) -> bool:
        """Whether every byte is as it was written."""
        return not self.issues


def verify(
    place: StatePlace,
    checkpoint_id: CheckpointId,
    *,
    read_data: bool,
    parallelism: int,
    known: ReadStates,
) -> StateVerification:
    """Check a checkpoint, its parents and every object; I/O errors pass through."""
    missing = StateVerification(checkpoint_id, [f"state checkpoint {checkpoint_id} is missing"])
    manifest = place.paths.manifest(checkpoint_id)
    try:
        result = _verified(place, checkpoint_id, read_data, parallelism, known)
    except StoreUnavailableError:
        if place.blobs.stat(manifest) is None:
            return missing
        raise
    if result.issues and place.blobs.stat(manifest) is None:
        return missing  # since then, manifest first: nothing else is worth reporting
    return result


def _verified(
    place: StatePlace,
    checkpoint_id: CheckpointId,
    read_data: bool,
    parallelism: int,
    known: ReadStates,
) -> StateVerification:
    blobs, paths, catalog = place
    try:
        resolution = catalog.resolved(checkpoint_id, known)
    except DamageError as error:
        return StateVerification(checkpoint_id, [error.what])
    if problem := resolution.problem:
        return StateVerification(checkpoint_id, [problem])
    looks = known.objects if read_data else known.presence
    found = known.verdicts(read_data=read_data).of(
        resolution, lambda links: looks.problems(blobs, paths, links, parallelism)
    )
    return StateVerification(checkpoint_id, found.lines(), resolution)


Removal = tuple[CheckpointId, SeamarkError | None]
"""A checkpoint that was to be removed, and why it was left; None when it is gone."""


def delete_each(place: StatePlace, doomed: Iterable[CheckpointId]) -> Iterator[Removal]:
    """Remove checkpoints one by one, in this order; one that another builds on is left.

    All manifests are read once, however many are to go.
    """
    blobs, paths, catalog = place
    doomed = list(doomed)
    loaded = catalog.load_listed() if doomed else {}
    there = readable(loaded)
    children: dict[CheckpointId | None, set[CheckpointId]] = {}
    for manifest in there.values():
        children.setdefault(manifest.parent_id, set()).add(manifest.checkpoint_id)
    objects = {i: _objects_of_doomed(there[i], paths) for i in doomed if i in there}
    named = Counter(key for keys in objects.values() for key in keys)
    for checkpoint_id, manifest in there.items():
        if checkpoint_id not in objects:
            named.update(objects_of(manifest, paths))
    left: dict[CheckpointId, SeamarkError] = {}
    going: dict[CheckpointId, None] = {}
    for checkpoint_id in doomed:
        manifest_or_damage = loaded.get(checkpoint_id)
        if not isinstance(manifest_or_damage, CheckpointManifestV2):
            left[checkpoint_id] = manifest_or_damage or no_state(checkpoint_id, blobs.url)
        elif building := children.get(checkpoint_id):
            left[checkpoint_id] = _is_parent(checkpoint_id, str(min(building)), blobs.url)
        elif checkpoint_id not in going:
            children[manifest_or_damage.parent_id].discard(checkpoint_id)
            named.subtract(objects[checkpoint_id])
            going[checkpoint_id] = None
    gone = remove(place, [*going], loaded, lambda key: named[key] > 0) if going else set()
    for checkpoint_id in doomed:
        why = left.get(checkpoint_id)
        if why is None and checkpoint_id not in gone:
            why = _is_parent(checkpoint_id, "one that is being published", blobs.url)
        yield checkpoint_id, why


def _objects_of_doomed(manifest: CheckpointManifestV2, paths: CheckpointPaths) -> set[str]:
    """Its objects; none when a path leads elsewhere, so that it can be removed all the same."""
    try:
        return objects_of(manifest, paths)
    except DamageError:
        return set()


def no_state(checkpoint_id: CheckpointId, url: str) -> CheckpointNotFoundError:
    """The error for an id that there is nothing under."""
    return CheckpointNotFoundError(f"there is no state checkpoint {checkpoint_id}", where=url)


def _is_parent(checkpoint_id: CheckpointId, child: str, url: str) -> RefusedError:
    return RefusedError(
        f"state checkpoint {checkpoint_id} is the parent of {child}",
        where=url,
        hint="Remove that one first, or keep both.",
    )


def prune(place: StatePlace, keep: int) -> int:
    """Keep the newest ``keep`` whole checkpoints and all that they refer to; how many went."""
    blobs, paths, catalog = place
    loaded = catalog.load_listed()
    manifests = readable(loaded)
    present = {entry.key for entry in blobs.entries(paths.prefix)}
    kept: set[CheckpointId] = set()
    counted: list[CheckpointId] = []
    damaged = 0
    resolved: dict[CheckpointId, Resolution] = {}
    whole: set[CheckpointId] = set()
    verdicts = Verdicts()

    def absent(link: Link) -> str | None:
        try:
            return None if key_of(link, paths) in present else "it is gone"
        except DamageError as error:
            return error.what

    for checkpoint_id in newest_first(manifests):
        if len(counted) == keep:
            break
        try:
            line = lineage(manifests.get, checkpoint_id, resolved)
            base = line[-1].parent_id if line else checkpoint_id
            for manifest, resolution in resolutions(resolved[base] if base else None, line):
                resolved[manifest.checkpoint_id] = resolution
            resolution = resolved[checkpoint_id]
            problem = resolution.problem
            if problem or verdicts.of(resolution, lambda links: [*map(absent, links)]).number:
                raise DamageError(problem or "some of its objects are gone")
        except DamageError:
            kept.add(checkpoint_id)  # newer than one that counts: it stays to be looked at
            damaged += 1
            if damaged > limits.MOST_DAMAGED_STATES:
                raise RefusedError(
                    f"more than {limits.MOST_DAMAGED_STATES} state checkpoints are damaged",
                    where=blobs.url,
                    hint="Nothing was removed. verify() tells what is wrong with them; delete() "
                    "removes them.",
                ) from None
            continue
        # each with all that it builds on
        whole |= {m.checkpoint_id for m in lineage(manifests.get, checkpoint_id, whole)}
        counted.append(checkpoint_id)
    if not counted:
        return 0  # nothing whole to fall back on, so nothing goes
    kept |= whole
    named = catalog.pointed_at()
    # a damaged one has neither epoch nor parent: it stays if it may be newer than one of these
    kept |= {i for i in loaded.keys() - manifests.keys() if i > min(counted) or i == named}
    doomed = sorted(set(loaded) - kept, reverse=True)
    remaining = (manifest for i, manifest in manifests.items() if i in kept)
    needed = set[str]().union(*(objects_of(manifest, paths) for manifest in remaining))
    return len(remove(place, doomed, loaded, needed.__contains__))


def cleanup_orphans(place: StatePlace, min_age: float) -> int:
    """Remove what :func:`plan_cleanup` finds; how many."""
    if not plan_cleanup(place, min_age, place.blobs.clock()):
        return 0
    # not beside a removal, which may put back what has these objects
    with RemovalMark(place.blobs, place.paths).held():
        orphans = plan_cleanup(place, min_age, place.blobs.clock())
        place.blobs.delete([entry.key for entry in orphans])
        return len(orphans)


def plan_cleanup(place: StatePlace, min_age: float, now: float | None = None) -> list[Entry]:
    """Objects that no manifest names and that are old enough to be removed.

    ``now`` is the time by the store's clock, where it could be asked for; else this machine's.
    """
    blobs, paths, catalog = place
    oldest = (time.time() if now is None else now) - min_age
    # objects before manifests: one that is published in between is then seen as published
    objects = [
        entry
        for entry in blobs.entries(paths.prefix)
        # other things may live below the same prefix: only folders named by an id are ours
        if entry.modified <= oldest and parsed_id(_folder(entry.key, paths)) is not None
    ]
    first = catalog.load_listed()
    wanted, came, _ = news(catalog, first)
    loaded = {**first, **came}
    unreadable = [i for i, m in loaded.items() if isinstance(m, DamageError)]
    if unreadable:
        raise RefusedError(
            f"the manifest of state checkpoint {unreadable[0]} is damaged, so nobody knows what it"
            " needs",
            where=blobs.url,
            hint="Delete that checkpoint first.",
        )
    there = readable(loaded)
    _require_parents(there, wanted, blobs.url)
    needed = {paths.manifest(checkpoint_id) for checkpoint_id in loaded}
    for manifest in there.values():
        needed |= objects_of(manifest, paths)
    offsets = {f"{paths.checkpoint_dir(checkpoint_id)}offsets" for checkpoint_id in loaded}
    orphans = [e for e in objects if e.key not in needed and _below(e.key, paths) not in offsets]
    return orphans + unfinished(blobs, oldest)


def _require_parents(
    there: Mapping[CheckpointId, CheckpointManifestV2], wanted: Collection[CheckpointId], url: str
) -> None:
    """:class:`RefusedError` when one is missing that others build on, or are about to.

    A removal takes the manifest away before it sees that somebody does, and puts it back.
    """
    parents = {manifest.parent_id for manifest in there.values()} - {None}
    if missing := [i for i in (*parents, *wanted) if i is not None and i not in there]:
        raise RefusedError(
            f"state checkpoint {min(missing)}, which others build on, is missing, so nobody knows "
            "what it needs",
            where=url,
            hint="Try again in a while: one that is being removed may be put back. What builds on "
            "one that stays away is damaged: delete that first.",
        )


def _folder(key: str, paths: CheckpointPaths) -> str:
    return key.removeprefix(paths.prefix).split("/", 1)[0]


def _below(key: str, paths: CheckpointPaths) -> str:
    """The folder of a checkpoint's folder that a key is in, or the key of an object there."""
    inside = key.removeprefix(paths.prefix).split("/", 2)
    return paths.prefix + "/".join(inside[:2])


def copy(
    source: StatePlace,
    target: StatePlace,
    checkpoint_id: CheckpointId,
    known: ReadStates,
    *,
    parallelism: int,
) -> int:
    """Copy a checkpoint and all that it builds on, verified on the way; objects written.

    What the target already has is verified instead of being written again, so a copy that was
    interrupted can be repeated. Manifests come last, parents first. What ``known`` has as copied
    is there, with all that it builds on: each link of a long chain is copied or verified once.
    """
    blobs, paths, catalog = source
    if problem := catalog.resolved(checkpoint_id, known).problem:
        raise DamageError(problem, where=blobs.url)
    new = catalog.lineage(checkpoint_id, known, known.copied)
    by_key: dict[str, dict[Link, None]] = {}
    for manifest in new:
        for _, link in links_of(manifest):
            by_key.setdefault(key_of(link, paths), {})[link] = None

    def one(item: tuple[str, dict[Link, None]]) -> int:
        key, links = item
        return _copy_object(source, target, key, [*links], known)

    origins = {link.origin for links in by_key.values() for link in links}
    parents = {manifest.parent_id for manifest in new if manifest.parent_id is not None}
    needed = (origins | parents) - {checkpoint_id}
    with target.catalog.keeping(checkpoint_id, needed):
        _require_copied(target, parents & known.copied)
        written = sum(map_in_threads(one, by_key.items(), parallelism, "seamark-copy"))
        for manifest in reversed(new):
            data = catalog.raw(manifest.checkpoint_id)
            if data is None:
                gone = f"state checkpoint {manifest.checkpoint_id} is gone"
                raise DamageError(gone, where=blobs.url)
            target.catalog.publish_bytes(manifest.checkpoint_id, data)
            known.copied.add(manifest.checkpoint_id)
    return written


def _require_copied(target: StatePlace, copied: Iterable[CheckpointId]) -> None:
    """:class:`StoreUnavailableError` when the target has been pruned since they were copied."""
    for checkpoint_id in copied:
        if target.blobs.stat(target.paths.manifest(checkpoint_id)) is None:
            raise StoreUnavailableError(
                f"state checkpoint {checkpoint_id} was copied, and has been removed since",
                where=target.blobs.url,
                hint="The target is in use. Copy what builds on it again from the beginning.",
            )


def _copy_object(
    source: StatePlace,
    target: StatePlace,
    key: str,
    links: list[Link],
    known: ReadStates,
) -> int:
    blobs, paths, _ = source
    there, there_paths, _ = target
    goal = there_paths.prefix + key.removeprefix(paths.prefix)
    looks = known.at_target
    packed = [link for link in links if link.entry.pack is not msgspec.UNSET]
    is_new = there.stat(goal) is None
    if is_new and packed:
        data = read_pack(blobs, key)
        seen = seen_pack(data)
        _refuse((seen.problem_of(key, link) for link in packed), blobs.url)
        create_once(there, goal, data, LARGEST_PACK)
        looks.add(ObjectRead(goal, is_pack=True), seen)
    elif is_new:
        entry = links[0].entry
        try:
            # the stream raises after its last piece when the bytes were wrong, before they appear
            there.create_stream(goal, stream_link(blobs, paths, links[0]))
            if entry.sha256 is not None:
                looks.add(
                    ObjectRead(goal, is_pack=False),
                    SeenObject(None, entry.size_bytes, entry.sha256),
                )
        except KeyExists:
            pass  # another copy was faster: what it wrote is read now
    _refuse(looks.problems(there, there_paths, links, 1), there.url)
    there.make_durable(goal)  # a copy that died here may have left it otherwise
    return int(is_new)


def _refuse(problems: Iterable[str | None], url: str) -> None:
    """:class:`DamageError` with the first problem, if there is one."""
    if problem := next(filter(None, problems), None):
        raise DamageError(problem, where=url)
