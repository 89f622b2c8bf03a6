"""Whether a checkpoint is valid: its manifest, its state, and the chain it builds on.

Tests: ``tests/store/test_bit_flips.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple

from seamark._common.text import shortened
from seamark.errors import DamageError
from seamark.limits import LONGEST_REASON
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.state import ReadStates
from seamark.store.index_parts import LOG, check_packs, decode_index, find_index
from seamark.store.manifests import Manifests, Tombstone
from seamark.store.owner import OddGeneration, Owner, Standing, arrived_too_late, standing
from seamark.store.ownership import Ownership
from seamark.store.partitioned_state import PartitionedStates
from seamark.store.shared_objects import ReadObjects, SharedObjects
from seamark.store.sidecars import Sidecars, has_sidecar

_MOST_REMEMBERED: Final = 10_000

ReadState = Literal["always", "once", "unshared", "size", "never"]
"""How much of the state is read; ``"unshared"`` is ``"once"`` without the shared objects."""


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


@dataclass(frozen=True)
class SeenState:
    """State that was read in one pass over many checkpoints, outside of their manifests."""

    objects: ReadObjects = field(default_factory=ReadObjects)
    partitioned: ReadStates = field(default_factory=ReadStates)


@dataclass(frozen=True)
class KnownCheckpoints:
    """What was seen in one pass over many checkpoints, so that what they share is read once."""

    examined: dict[tuple[int, ReadState], ExaminedCheckpoint] = field(default_factory=dict)
    broken_links: dict[tuple[int, ReadState], str | None] = field(default_factory=dict)
    """What is wrong with the parents of a checkpoint, None if nothing is."""
    state: SeenState = field(default_factory=SeenState)


class Validator:
    """Examines checkpoints of one store. I/O errors pass through: they prove nothing."""

    def __init__(
        self,
        manifests: Manifests,
        sidecars: Sidecars,
        partitioned: PartitionedStates,
        shared: SharedObjects,
        ownership: Ownership,
        vnode_count: int | None,
    ) -> None:
        self._manifests = manifests
        self._ownership = ownership
        self._sidecars = sidecars
        self._partitioned = partitioned
        self._shared = shared
        self._vnode_count = vnode_count
        self._sound: set[tuple[object, ...]] = set()

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
        long as the file has not been written since. ``"unshared"`` does not read shared objects
        either, as long as they have their sizes and were not seen to be damaged. With ``known``
        nothing is examined twice.
        """
        seen = KnownCheckpoints() if known is None else known
        own = self._examine_known(checkpoint_id, owner, read_state, seen)
        if own.kind is not CheckpointKind.CHECKPOINT or own.manifest is None:
            return own
        broken = self._broken_link(own.manifest, owner, read_state, seen)
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
        known: KnownCheckpoints,
    ) -> ExaminedCheckpoint:
        # one whose state was read, or believed, is known all the better without
        examined = known.examined.get((checkpoint_id, read_state))
        if examined is None and read_state == "never":
            depths: tuple[ReadState, ...] = ("once", "unshared")
            found = (known.examined.get((checkpoint_id, depth)) for depth in depths)
            examined = next(filter(None, found), None)
        if examined is None:
            examined = self.examine_one(checkpoint_id, owner, read_state, known.state)
            bare = examined.manifest
            if bare is not None:
                # state that is inline may be large, and many are remembered
                bare = bare.replace(operator_states={})
            known.examined[checkpoint_id, read_state] = examined._replace(manifest=bare)
        return examined

    def _broken_link(
        self,
        manifest: CheckpointManifest,
        owner: Owner,
        read_state: ReadState,
        known: KnownCheckpoints,
    ) -> str | None:
        """What is wrong with its parents. They are followed to the end, which each chain has."""
        passed: list[tuple[int, ReadState]] = []
        child: CheckpointManifest | None = manifest
        problem: str | None = None
        while child is not None:
            link = child.checkpoint_id, read_state
            if link in known.broken_links:
                problem = known.broken_links[link]
                break
            passed.append(link)
            child, problem = self._parent(child, owner, read_state, known)
        known.broken_links.update(dict.fromkeys(passed, problem))
        return problem

    def _parent(
        self,
        child: CheckpointManifest,
        owner: Owner,
        read_state: ReadState,
        known: KnownCheckpoints,
    ) -> tuple[CheckpointManifest | None, str | None]:
        """What a checkpoint builds on, if on anything, or why it cannot."""
        if not child.is_incremental:
            return None, None
        parent_id = child.parent_id or 0  # seen to be older when the child was examined
        if standing(owner, parent_id) is Standing.PRUNED:
            return None, f"parent {parent_id} of checkpoint {child.checkpoint_id} was pruned"
        parent = self._examine_known(parent_id, owner, read_state, known)
        if parent.kind is CheckpointKind.CHECKPOINT and parent.manifest is not None:
            return parent.manifest, None
        # told of every checkpoint that builds on it, and it may have very many findings
        first, more = parent.result.damage[:1], len(parent.result.damage) - 1
        why = shortened("".join(first) or parent.kind.value, LONGEST_REASON)
        why += f", and {more} more" if more > 0 else ""
        return None, f"parent {parent_id} of checkpoint {child.checkpoint_id}: {why}"

    def examine_one(
        self,
        checkpoint_id: int,
        owner: Owner,
        read_state: ReadState,
        seen: SeenState | None = None,
    ) -> ExaminedCheckpoint:
        """The same without its parents. ``"size"`` only sees that all of its state is there.

        State that was ``seen`` is not read again; what is read is added.
        """
        seen = SeenState() if seen is None else seen
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
        damage = self._damage(manifest, read_state, seen)
        return examined(
            kinds.DAMAGED if damage else kinds.CHECKPOINT,
            checkpoint_id,
            *damage,
            manifest=manifest,
            warnings=self._warnings(manifest),
        )

    def _damage(
        self, manifest: CheckpointManifest, read_state: ReadState, seen: SeenState
    ) -> list[str]:
        damage = [*unrestorable(manifest, manifest.state_bytes), *unsafe_names(manifest)]
        if not damage and read_state != "never":
            try:
                problem = self._state_problem(manifest, read_state, seen)
            except DamageError as error:
                problem = error.what
            if problem:
                damage.append(problem)
        return damage

    def _state_problem(
        self, manifest: CheckpointManifest, read_state: ReadState, seen: SeenState
    ) -> str | None:
        if read_state == "size":
            return (
                self._sidecars.size_problem(manifest)
                or self._index_problem(manifest, read_sidecar=False)
                or self._partitioned.problem(manifest, read_data=False, seen=seen.partitioned)
                or self._shared.problem(manifest, read_data=False, seen=seen.objects)
            )
        believe = read_state != "always"
        read_shared = read_state != "unshared"
        return (
            self._sidecars.problem(manifest, believe=believe)
            or self._index_problem(manifest)
            or self._partitioned.problem(manifest, believe=believe, seen=seen.partitioned)
            or self._shared.problem(
                manifest, believe=believe, read_data=read_shared, seen=seen.objects
            )
        )

    def _index_problem(
        self, manifest: CheckpointManifest, *, read_sidecar: bool = True
    ) -> str | None:
        """What is wrong with the index of a checkpoint's files, if it has one."""
        operators = manifest.operator_states
        if not manifest.is_ours or LOG not in operators:
            return None
        if not read_sidecar and any(operator.external for operator in operators.values()):
            return None
        # whatever the index is checked against
        about = (manifest.checkpoint_id, manifest.state_checksum, manifest.shared_objects)
        if about in self._sound and manifest.state_checksum is not None:
            return None
        logs = self._sidecars.pack_of(manifest, operators[LOG])
        part = find_index(logs.entries) if logs is not None else None
        if logs is not None and part is not None:
            decode_index(logs.data(part), manifest.shared_objects)
            others = (op for label, op in operators.items() if label != LOG)
            packs = (self._sidecars.pack_of(manifest, operator) for operator in others)
            check_packs([logs, *filter(None, packs)])
        if len(self._sound) >= _MOST_REMEMBERED:
            self._sound.clear()
        self._sound.add(about)
        return None

    def _warnings(self, manifest: CheckpointManifest) -> list[str]:
        warnings = [f"manifest validation: {text}" for text in manifest.validate(self._vnode_count)]
        if not manifest.is_ours:
            warnings.append("written by another system: the manifest has no checksum of its own")
        if state_evidence(manifest) is Evidence.SIZE:
            warnings.append("its state has no checksum: nothing shows whether its bytes are right")
        return warnings
