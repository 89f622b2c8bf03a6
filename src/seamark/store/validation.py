"""Whether a checkpoint is valid: its manifest, its state, and the chain it builds on.

Tests: ``tests/store/test_bit_flips.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.store.manifests import Manifests, Tombstone
from seamark.store.owner import OddGeneration, Owner, Standing, arrived_too_late, standing
from seamark.store.ownership import Ownership
from seamark.store.partitioned_state import PartitionedStates
from seamark.store.sidecars import Sidecars, has_sidecar

LONGEST_CHAIN: Final = 1000

ReadState = Literal["always", "once", "size", "never"]


@dataclass(frozen=True)
class ValidationIssue:
    """One finding. Only damage makes a checkpoint unusable."""

    severity: Literal["warning", "damage"]
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class ValidationResult:
    """The outcome of checking one checkpoint: valid unless something is proven wrong."""

    checkpoint_id: int
    valid: bool
    issues: list[ValidationIssue] = field(default_factory=list)

    @classmethod
    def of(cls, checkpoint_id: int, damage: list[str], warnings: list[str]) -> ValidationResult:
        """Valid when there is no damage, whatever the warnings."""
        issues = [ValidationIssue("warning", text) for text in warnings]
        issues += [ValidationIssue("damage", text) for text in damage]
        return cls(checkpoint_id, not damage, issues)

    @property
    def damage(self) -> list[str]:
        """The messages that make it unusable."""
        return [issue.message for issue in self.issues if issue.severity == "damage"]


class Evidence(Enum):
    """How it is known that the state is what was written."""

    NO_STATE = "no state"
    SHA256 = "sha256"
    """A checksum was compared."""
    SIZE = "size"
    """It has no checksum: it is there in full size, but nothing shows that its bytes are right."""


def state_evidence(manifest: CheckpointManifest) -> Evidence:
    """What reading the state of a checkpoint proves, when nothing is found to be wrong."""
    holds_state = bool(manifest.operator_states) or has_sidecar(manifest)
    partitioned = manifest.state_checkpoint is not None
    if not holds_state and not partitioned:
        return Evidence.NO_STATE
    if holds_state and manifest.state_checksum is None:
        return Evidence.SIZE
    # partitioned state of ours has checksums of its own; another system's is not looked at
    return Evidence.SIZE if partitioned and not manifest.is_ours else Evidence.SHA256


def weakest(manifests: Iterable[CheckpointManifest]) -> Evidence:
    """What is proven of checkpoints that build on each other."""
    kinds = {state_evidence(manifest) for manifest in manifests}
    for evidence in (Evidence.SIZE, Evidence.SHA256):
        if evidence in kinds:
            return evidence
    return Evidence.NO_STATE


class CheckpointKind(Enum):
    """What an id turned out to hold."""

    CHECKPOINT = "checkpoint"
    DAMAGED = "damaged"
    NOTHING = "nothing"
    TOMBSTONE = "tombstone"
    TOO_LATE = "too late"


class ExaminedCheckpoint(NamedTuple):
    """One id, looked at."""

    kind: CheckpointKind
    manifest: CheckpointManifest | None
    result: ValidationResult

    @classmethod
    def of(
        cls,
        kind: CheckpointKind,
        checkpoint_id: int,
        *damage: str,
        manifest: CheckpointManifest | None = None,
        warnings: Iterable[str] = (),
    ) -> ExaminedCheckpoint:
        """With the result that these findings make."""
        result = ValidationResult.of(checkpoint_id, [*damage], [*warnings])
        return cls(kind, manifest, result)


KnownCheckpoints = dict[tuple[int, ReadState], ExaminedCheckpoint]
"""What was examined in one pass over many checkpoints, so that a shared parent is read once."""


class Validator:
    """Examines checkpoints of one store. I/O errors pass through: they prove nothing."""

    def __init__(
        self,
        manifests: Manifests,
        sidecars: Sidecars,
        partitioned: PartitionedStates,
        ownership: Ownership,
        vnode_count: int | None,
    ) -> None:
        self._manifests = manifests
        self._ownership = ownership
        self._sidecars = sidecars
        self._partitioned = partitioned
        self._vnode_count = vnode_count

    def examine(
        self,
        checkpoint_id: int,
        owner: Owner,
        *,
        read_state: ReadState = "always",
        known: KnownCheckpoints | None = None,
    ) -> ExaminedCheckpoint:
        """Everything that can be wrong with a checkpoint, its parents included.

        ``read_state="once"`` believes state that this handle has verified or written before, as
        long as the file has not been written since. With ``known`` nothing is examined twice.
        """
        own = self._examine_known(checkpoint_id, owner, read_state, known)
        if own.kind is not CheckpointKind.CHECKPOINT or own.manifest is None:
            return own
        broken = self._broken_link(own.manifest, owner, read_state, known)
        if broken is None:
            return own
        warnings = [str(issue) for issue in own.result.issues]
        damaged = CheckpointKind.DAMAGED
        return ExaminedCheckpoint.of(
            damaged, checkpoint_id, broken, manifest=own.manifest, warnings=warnings
        )

    def _examine_known(
        self,
        checkpoint_id: int,
        owner: Owner,
        read_state: ReadState,
        known: KnownCheckpoints | None,
    ) -> ExaminedCheckpoint:
        if known is None:
            return self.examine_one(checkpoint_id, owner, read_state)
        # one whose state was read, or believed, is known all the better without
        examined = known.get((checkpoint_id, read_state)) or (
            known.get((checkpoint_id, "once")) if read_state == "never" else None
        )
        if examined is None:
            examined = self.examine_one(checkpoint_id, owner, read_state)
            if examined.manifest is not None:
                # state that is inline may be large, and many are remembered
                bare = examined.manifest.replace(operator_states={})
                known[checkpoint_id, read_state] = examined._replace(manifest=bare)
        return examined

    def _broken_link(
        self,
        manifest: CheckpointManifest,
        owner: Owner,
        read_state: ReadState,
        known: KnownCheckpoints | None,
    ) -> str | None:
        child = manifest
        for _ in range(LONGEST_CHAIN):
            if not child.is_incremental:
                return None
            parent_id = child.parent_id or 0  # seen to be older when the child was examined
            if standing(owner, parent_id) is Standing.PRUNED:
                return f"parent {parent_id} of checkpoint {child.checkpoint_id} was pruned"
            parent = self._examine_known(parent_id, owner, read_state, known)
            if parent.kind is not CheckpointKind.CHECKPOINT or parent.manifest is None:
                why = "; ".join(parent.result.damage) or parent.kind.value
                return f"parent {parent_id} of checkpoint {child.checkpoint_id}: {why}"
            child = parent.manifest
        return f"its chain of parents has more than {LONGEST_CHAIN} links"

    def examine_one(
        self, checkpoint_id: int, owner: Owner, read_state: ReadState
    ) -> ExaminedCheckpoint:
        """The same without its parents. ``"size"`` only sees that all of its state is there."""
        kinds, examined = CheckpointKind, ExaminedCheckpoint.of
        try:
            stored = self._manifests.read(checkpoint_id)
            if stored is None:
                gone = f"manifest not found for checkpoint {checkpoint_id}"
                return examined(kinds.NOTHING, checkpoint_id, gone)
            if isinstance(stored, Tombstone):
                text = f"checkpoint {checkpoint_id} was never decided: its id was given up"
                return examined(kinds.TOMBSTONE, checkpoint_id, text)
        except DamageError as error:
            return examined(kinds.DAMAGED, checkpoint_id, error.what)
        manifest = stored.manifest
        try:
            owner = self._ownership.covering(owner, manifest.generation, checkpoint_id)
        except OddGeneration as error:
            return examined(kinds.DAMAGED, checkpoint_id, error.what)
        if arrived_too_late(owner, manifest):
            text = (
                f"written by generation {manifest.generation} after another writer had taken over"
            )
            return examined(kinds.TOO_LATE, checkpoint_id, text, manifest=manifest)
        damage = self._damage(manifest, read_state)
        return examined(
            kinds.DAMAGED if damage else kinds.CHECKPOINT,
            checkpoint_id,
            *damage,
            manifest=manifest,
            warnings=self._warnings(manifest),
        )

    def _damage(self, manifest: CheckpointManifest, read_state: ReadState) -> list[str]:
        damage = [*unrestorable(manifest, manifest.state_bytes), *unsafe_names(manifest)]
        if not damage and read_state != "never":
            try:
                problem = self._state_problem(manifest, read_state)
            except DamageError as error:
                problem = error.what
            if problem:
                damage.append(problem)
        return damage

    def _state_problem(self, manifest: CheckpointManifest, read_state: ReadState) -> str | None:
        if read_state == "size":
            problem = self._sidecars.size_problem(manifest)
            return problem or self._partitioned.problem(manifest, read_data=False)
        believe = read_state == "once"
        problem = self._sidecars.problem(manifest, believe=believe)
        return problem or self._partitioned.problem(manifest, believe=believe)

    def _warnings(self, manifest: CheckpointManifest) -> list[str]:
        warnings = [f"manifest validation: {text}" for text in manifest.validate(self._vnode_count)]
        if not manifest.is_ours:
            warnings.append("written by another system: the manifest has no checksum of its own")
        if state_evidence(manifest) is Evidence.SIZE:
            warnings.append("its state has no checksum: nothing shows whether its bytes are right")
        return warnings
