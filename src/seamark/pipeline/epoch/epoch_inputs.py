"""What an epoch has read of each source, as short texts that are the same in every timeline.

A fork and its origin read the same sources. These texts tell whether an epoch of the one had the
same rows as an epoch of the other, whatever the order of the outputs.

Tests: ``tests/pipeline/test_epoch_inputs.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from seamark.manifest import CheckpointManifest
from seamark.pipeline.epoch.running_epoch import RunningEpoch, lines_by_source
from seamark.spark.batch_log import Plan

_LOGGED: Final = re.compile(r"sources/([0-9]+)/(.+)")
_LOG_OFFSET: Final = '"logOffset"'
"""In a position that counts the entries of the source's own log, and says nothing without it."""


def epoch_inputs(epoch: RunningEpoch, before: CheckpointManifest | None) -> dict[str, Any]:
    """What an epoch reads that follows a checkpoint: see :func:`inputs_of`."""
    identity = epoch.identity
    return inputs_of(identity.leaves, epoch.entry.lines, epoch.plan, before, identity.first_lines)


def inputs_of(
    leaves: Sequence[str],
    lines: Sequence[str],
    plan: Plan,
    before: CheckpointManifest | None,
    first_lines: Sequence[int] | None = None,
) -> dict[str, Any]:
    """By source: ``read``, the rows of the epoch, and ``at``, the position after it.

    ``at`` is left out where positions of two checkpoints cannot be compared. ``before`` is the
    checkpoint that the epoch follows. ``first_lines`` tells the line of each folder of logs, where
    a source has several.
    """
    had = {} if before is None else before.source_offsets
    if first_lines is None:
        first_lines = [leaves.index(name) for name in dict.fromkeys(leaves)]
    logged = _logged([leaves[line] for line in first_lines], plan.sources)
    inputs: dict[str, Any] = {}
    for name, own in lines_by_source(leaves, lines).items():
        start = sorted(had[name].metadata.values()) if name in had else []
        entries = logged.get(name, [])
        counted = any(_LOG_OFFSET in line for line in own)
        # a count of log entries means the same only as long as the entries are the same
        bounds = [] if counted else [*start, "to", *own]
        inputs[name] = {"read": _digest([*bounds, *entries])}
        if not counted:
            inputs[name]["at"] = _digest(own)
    return inputs


def _logged(names: Sequence[str], sources: Mapping[str, str]) -> dict[str, list[str]]:
    """By source: what its own log says about the epoch; ``names`` are those of the folders."""
    entries: dict[str, list[str]] = {}
    for path in sorted(sources):
        match = _LOGGED.fullmatch(path)
        if match is not None and int(match[1]) < len(names):
            entries.setdefault(names[int(match[1])], []).append(sources[path])
    return entries


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
