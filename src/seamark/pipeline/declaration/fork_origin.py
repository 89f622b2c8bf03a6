"""What a fork has of the pipeline that it was forked from, and what it must not share with it.

A fork begins with the structure of the other pipeline without its name and without its sinks'
places: those are the fork's own. Its checkpoints remember the places of before, so that no start
can ever write there.

Tests: ``tests/pipeline/test_fork_origin.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from seamark.errors import RefusedError
from seamark.limits import LONGEST_TARGET, MOST_ORIGIN_TARGETS
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import described, is_first_of_fork
from seamark.manifest.origins import ForkOrigin
from seamark.pipeline.declaration.structure import PipelineIdentity, Structure
from seamark.pipeline.declaration.target_places import (
    PLACELESS,
    are_one_place,
    named_target,
    place_of,
)

_PLACE: Final[Mapping[str, Any]] = {"kind": "", "target": "", "options": {}}


def origin_of(
    url: str, chosen: CheckpointManifest, newest: CheckpointManifest | None
) -> ForkOrigin:
    """What a fork of a checkpoint remembers. ``newest`` may have sinks that the chosen one lacks.

    :class:`RefusedError` when that is more than a checkpoint can hold.
    """
    manifests = [chosen, *([newest] if newest is not None else [])]
    before = [each.fork for each in manifests if each.fork is not None]
    targets = dict.fromkeys(
        [
            *(target for origin in before for target in origin.targets),
            *(target for manifest in manifests for target in _targets(manifest)),
        ]
    )
    groups = dict.fromkeys(
        [
            *(group for origin in before for group in origin.consumer_groups),
            *(each.consumer_group for each in manifests if each.consumer_group),
        ]
    )
    names = dict.fromkeys(
        [
            *(name for manifest in manifests if (name := _name(manifest))),
            *(name for origin in before for name in origin.pipelines),
        ]
    )
    own = chosen.fork
    earlier = () if own is None else ((own.timeline, own.epoch), *own.earlier)
    if max(len(targets), len(groups), len(names), len(earlier)) > MOST_ORIGIN_TARGETS:
        raise RefusedError(
            f"the pipeline has {len(targets)} sinks, and {MOST_ORIGIN_TARGETS} is the most for one "
            "that is forked",
            where=url,
        )
    return ForkOrigin(
        url=url,
        checkpoint_id=chosen.checkpoint_id,
        timeline=chosen.timeline or "",
        epoch=chosen.epoch,
        earlier=earlier,
        pipelines=tuple(names),
        targets=tuple(targets),
        consumer_groups=tuple(groups),
    )


def _name(manifest: CheckpointManifest) -> str:
    return str((manifest.structure or {}).get("name") or "")[:LONGEST_TARGET]


def _targets(manifest: CheckpointManifest) -> Iterable[tuple[str, str]]:
    pipeline = _name(manifest)
    for name, about in described(manifest, "sinks").items():
        kind, target = str(about.get("kind") or ""), str(about.get("target") or "")
        if target and kind not in PLACELESS:
            target = named_target(pipeline, name, kind, target)
            yield kind[:LONGEST_TARGET], target[:LONGEST_TARGET]


def without_places(structure: Structure) -> Structure:
    """The structure of a pipeline that has no name yet, and whose sinks are nowhere yet."""
    sinks = structure.get("sinks")
    return {
        **{key: value for key, value in structure.items() if key != "name"},
        "sinks": {
            name: {**about, **_PLACE} if isinstance(about, dict) else about
            for name, about in (sinks.items() if isinstance(sinks, dict) else ())
        },
    }


def with_places(checkpoint: CheckpointManifest, declared: Structure) -> CheckpointManifest:
    """The first checkpoint of a fork as if it had been made by the declared pipeline.

    Its name and the places of its sinks are taken from there; all else is compared. Any other
    checkpoint is given back as it is.
    """
    structure = checkpoint.structure
    if structure is None or not is_first_of_fork(checkpoint):
        return checkpoint
    sinks, now = structure.get("sinks"), declared["sinks"]
    if not isinstance(sinks, dict):
        return checkpoint
    placed = {
        name: {**about, **{key: now[name][key] for key in _PLACE}}
        if isinstance(about, dict) and name in now and not about.get("kind")
        else about
        for name, about in sinks.items()
    }
    return checkpoint.with_extra(structure={**structure, "name": declared["name"], "sinks": placed})


def require_apart(
    origin: ForkOrigin, identity: PipelineIdentity, consumer_group: str | None = None
) -> None:
    """:class:`RefusedError` when a fork would write where a pipeline before it writes."""
    where = f"forked from {origin.url}@{origin.checkpoint_id}"
    if identity.name in origin.pipelines:
        raise RefusedError(
            f"a fork needs a name of its own, and {identity.name!r} is that of its origin",
            where=where,
            hint="Sinks, servers and Spark know a pipeline by its name: choose another one.",
        )
    if consumer_group is not None and consumer_group in origin.consumer_groups:
        raise RefusedError(
            f"the consumer group {consumer_group!r} is that of the origin",
            where=where,
            hint="Give the fork a consumer_group of its own, or none.",
        )
    taken = [(target, place_of(kind, target)) for kind, target in origin.targets]
    for name, sink in identity.structure["sinks"].items():
        if sink["kind"] in PLACELESS or not sink["target"]:
            continue
        full = named_target(identity.name, name, sink["kind"], sink["target"])
        mine = place_of(sink["kind"], full)
        for target, place in taken:
            if are_one_place(mine, place):
                raise RefusedError(
                    f"sink {name!r} writes to {sink['target']}, where a sink of the origin writes",
                    where=f"{where}: its target is {target}",
                    hint="Nothing was written. Give the fork targets of its own.",
                )
