"""What one pass over many state checkpoints has read, so that what they share is read once.

Tests: ``tests/state/test_read_states.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seamark.state.chains import Link
from seamark.state.layout import CheckpointId, CheckpointManifestV2

_MOST_ENTRIES: Final = 500_000
"""Of all manifests that are kept: about 200 MB."""


LookedAt = tuple[str, tuple[Link, ...], bool]
"""The key of an object, what was compared with it, and whether its bytes were read."""


class ReadStates:
    """Manifests, objects and copies of one pass.

    Manifests and objects never change, so none is read twice. A manifest that is missing is looked
    for again each time: a prune may have removed it, or a copy brought it back.
    """

    def __init__(self) -> None:
        self.copied: set[CheckpointId] = set()
        """What was copied or verified at the target, with all that it builds on."""
        self._manifests: dict[CheckpointId, CheckpointManifestV2] = {}
        self._entries = 0
        self.problems: dict[LookedAt, str | None] = {}
        """What is wrong with each object that was looked at, or None."""

    @property
    def manifests(self) -> Mapping[CheckpointId, CheckpointManifestV2]:
        """Those that were read and are still held."""
        return self._manifests

    def add(self, manifest: CheckpointManifestV2) -> None:
        """Remember a manifest; of very many, the first ones are forgotten."""
        if manifest.checkpoint_id in self._manifests:
            return
        self._manifests[manifest.checkpoint_id] = manifest
        self._entries += _entries_of(manifest)
        while self._entries > _MOST_ENTRIES and len(self._manifests) > 1:
            first = next(iter(self._manifests))
            self._entries -= _entries_of(self._manifests.pop(first))


def _entries_of(manifest: CheckpointManifestV2) -> int:
    return 1 + sum(len(state.partitions) for state in manifest.operators.values())
