"""A pipeline that got or lost a sink reads its sources in another order than Spark has noted."""

from __future__ import annotations

import os
from collections.abc import Sequence

from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.spark.batch_log import parse_offsets


def reorder_sources(
    copy: WorkingCopy, chosen: CheckpointManifest, identity: PipelineIdentity
) -> None:
    """Make Spark's logs in a working copy fit the order in which the sources are read now.

    The offset log has one line for each leaf of the plan; ``sources/`` one folder for each source,
    numbered by its first appearance.
    """
    old = list(identity.leaves if chosen.leaves is None else chosen.leaves)
    new = list(identity.leaves)
    if old == new:
        return
    old_order, new_order = list(dict.fromkeys(old)), list(dict.fromkeys(new))
    if set(new_order) - set(old_order):
        raise RefusedError("a source was added, and Spark cannot start it in the middle")
    _require_plain(copy, old_order)
    for batch in copy.batches("offsets"):
        path = f"offsets/{batch}"
        text = copy.read_text(path)
        if text is not None:
            copy.write(path, reordered(text, old, new).encode())
    _rename_folders(copy, old_order, new_order)


def reordered(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    """An entry of the offset log with one line for each leaf of ``new``."""
    entry = parse_offsets(text)
    lines = dict(zip(reversed(old), reversed(entry.lines), strict=True))
    head = text.split("\n")[:2]
    return "\n".join([*head, *(lines[name] for name in new)])


def _require_plain(copy: WorkingCopy, sources: Sequence[str]) -> None:
    try:
        folders = [name for name in os.listdir(copy.path("sources")) if name.isdigit()]
    except FileNotFoundError:
        return
    if any(int(name) >= len(sources) for name in folders):
        raise RefusedError(
            "sinks cannot be added to or removed from a pipeline that joins a source with itself",
            hint="Undo the change, or start over with policy='auto_reset'.",
        )


def _rename_folders(copy: WorkingCopy, old: Sequence[str], new: Sequence[str]) -> None:
    moves = {old.index(name): number for number, name in enumerate(new)}
    present = [n for n in range(len(old)) if os.path.isdir(copy.path(f"sources/{n}"))]
    if all(moves.get(n) == n for n in present):
        return
    for number in present:
        os.rename(copy.path(f"sources/{number}"), copy.path(f"sources/old-{number}"))
    for number in present:
        if number in moves:
            os.rename(copy.path(f"sources/old-{number}"), copy.path(f"sources/{moves[number]}"))
