"""What one pass over many state checkpoints has read, so that what they share is read once.

Tests: ``tests/state/test_read_states.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from seamark.state.given_links import GivenLinks
from seamark.state.layout import CheckpointId, CheckpointManifestV2
from seamark.state.object_looks import ObjectLooks, Presence
from seamark.state.resolution import Resolution, resolutions
from seamark.state.successive_states import SuccessiveStates
from seamark.state.verdicts import Verdicts

_MOST_ENTRIES: Final = 500_000
"""Of all manifests that are kept: about 400 MB, with what they resolve to."""


class BrokenLine(NamedTuple):
    """Why a checkpoint cannot be followed to what it builds on."""

    why: str
    missing: CheckpointId | None = None
    """The checkpoint that was not there."""


class ReadStates:
    """Manifests, objects and copies of one pass.

    Manifests and objects never change, so none is read twice. A manifest that is missing is looked
    for again each time: a prune may have removed it, or a copy brought it back.
    """

    def __init__(self) -> None:
        self.copied: set[CheckpointId] = set()
        """What was copied or verified at the target, with all that it builds on."""
        self.objects = ObjectLooks()
        self.presence = Presence()
        self.given = GivenLinks()
        self.successive = SuccessiveStates()
        self.at_target = ObjectLooks()
        """Objects that were copied, or were there before."""
        self.broken: dict[CheckpointId, BrokenLine] = {}
        self._manifests: dict[CheckpointId, CheckpointManifestV2] = {}
        self._resolutions: dict[CheckpointId, Resolution] = {}
        self._verdicts: dict[bool, Verdicts] = {}
        self._entries = 0

    @property
    def manifests(self) -> Mapping[CheckpointId, CheckpointManifestV2]:
        """Those that were read and are still held."""
        return self._manifests

    @property
    def resolutions(self) -> Mapping[CheckpointId, Resolution]:
        """What those consist of that were resolved and are still held."""
        return self._resolutions

    def add(self, manifest: CheckpointManifestV2) -> None:
        """Remember a manifest; of very many, the first ones are forgotten."""
        if manifest.checkpoint_id in self._manifests:
            return
        self._manifests[manifest.checkpoint_id] = manifest
        self._entries += _entries_of(manifest)
        while self._entries > _MOST_ENTRIES and len(self._manifests) > 1:
            first = next(iter(self._manifests))
            self._entries -= _entries_of(self._manifests.pop(first))
            self._resolutions.pop(first, None)
            self._verdicts.clear()  # they hold what was resolved

    def resolve(
        self, parent_id: CheckpointId | None, line: Iterable[CheckpointManifestV2]
    ) -> Resolution:
        """Work out and remember what checkpoints consist of that build on a resolved one.

        ``line`` is newest first; the last of it builds on the parent, or on nothing.
        """
        base = None if parent_id is None else self._resolutions[parent_id]
        resolution = base or Resolution()
        for manifest, resolution in resolutions(base, line):
            if manifest.checkpoint_id in self._manifests:
                self._resolutions[manifest.checkpoint_id] = resolution
        return resolution

    def verdicts(self, *, read_data: bool) -> Verdicts:
        """What was found where objects were read, or only looked for."""
        return self._verdicts.setdefault(read_data, Verdicts())


def _entries_of(manifest: CheckpointManifestV2) -> int:
    return 1 + sum(len(state.partitions) for state in manifest.operators.values())
