"""What a pipeline with other outputs takes over of a batch that was planned and not decided.

The offset log has a line for each leaf of the plan, and ``sources/`` a folder for each source by
its first appearance. So a pipeline that got, lost or reordered outputs has the same plan in other
words. It must not be made again: a source that begins 'now' has noted in it when that was.

Tests: ``tests/pipeline/test_working_dirs.py``, ``tests/pipeline/test_beginnings.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.spark.batch_log import NO_OFFSET, Plan, parse_offsets
from seamark.store import CheckpointStore

_ENTRY: Final = re.compile(r"sources/([0-9]{1,9})/(.+)")


def timeline_before_upgrade(store: CheckpointStore, chosen: CheckpointManifest | None) -> str:
    """The timeline that ended with an upgrade, whose checkpoint is the newest one; else empty.

    Empty too when the state has got other partitions: their number is a part of what was planned.
    """
    before = None
    # a rollback to that checkpoint repeats it, and gives up what was planned
    if chosen is not None and (chosen.upgrade or {}).get("from") == chosen.parent_id is not None:
        with suppress(DamageError):
            before = store.load_by_id(chosen.parent_id)
    if chosen is None or before is None or before.state_partitions != chosen.state_partitions:
        return ""
    return before.timeline or ""


def first_lines_of(leaves: Sequence[str]) -> list[int]:
    """For each source, by its first appearance: its first line of the offset log."""
    return [leaves.index(name) for name in dict.fromkeys(leaves)]


def carried_plan(plan: Plan, old: Sequence[str], new: Sequence[str]) -> Plan | None:
    """A plan for the leaves ``old`` as one for ``new``; None where that is not known."""
    if [*old] == [*new]:
        return plan
    had, has = list(dict.fromkeys(old)), list(dict.fromkeys(new))
    sources: dict[str, str] = {}
    for path, entry in plan.sources.items():
        match = _ENTRY.fullmatch(path)
        if match is None or int(match[1]) >= len(had):
            return None  # of a source that is joined with itself
        name = had[int(match[1])]
        if name in has:
            sources[f"sources/{has.index(name)}/{match[2]}"] = entry
    try:
        offsets = reordered(plan.offsets, old, new)
    except (DamageError, RefusedError):
        return None
    return replace(plan, offsets=offsets, sources=sources, leaves=tuple(new))


def reordered(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    """An entry of the offset log with a line for each leaf of ``new``; a new one has no offset.

    :class:`RefusedError` when leaves of one source have come to different places: which of them a
    leaf of now goes on from is not known.
    """
    entry = parse_offsets(text)
    if len(entry.lines) != len(old):
        raise DamageError(
            f"the offset log has {len(entry.lines)} lines, and the checkpoint names {len(old)}"
        )
    lines = dict(zip(old, entry.lines, strict=True))
    if any(lines[name] != line for name, line in zip(old, entry.lines, strict=True)):
        raise joined_with_itself()
    head = text.split("\n")[:2]
    return "\n".join([*head, *(lines.get(name, NO_OFFSET) for name in new)])


def joined_with_itself() -> RefusedError:
    """The error for sources that have several positions, where leaves come or go."""
    return RefusedError(
        "sinks cannot be added to or removed from a pipeline that joins a source with itself",
        hint="Undo the change, or start over with policy='auto_reset'.",
    )
