"""What the store adds to a manifest when it is saved.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

from seamark._common.checks import check_id
from seamark._common.writer import default_writer
from seamark.blobs.checksummed_json import checksum_of, seal
from seamark.errors import DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.store.checksums import ChecksumRule, inline_checksum, rule_for
from seamark.store.layout import Layout
from seamark.store.manifests import MANIFEST_VERSION, StoredManifest, Tombstone
from seamark.store.owner import Owner, arrived_too_late
from seamark.store.ownership import Claim
from seamark.store.sidecars import WrittenSidecar


def refuse_unsafe(manifest: CheckpointManifest) -> None:
    """Refuse what could not be read back, and names that could lead out of their folder."""
    check_id(manifest.checkpoint_id)
    _refuse_unreadable(manifest)
    if problem := next(unsafe_names(manifest), None):
        raise InvalidInputError(problem, hint="Names may not hold '/', '\\' or NUL, nor be '..'.")


def _refuse_unreadable(manifest: CheckpointManifest) -> None:
    # constructors do not look at types, so the only proof is to read what would be written
    try:
        CheckpointManifest.from_json(manifest.to_json())
    except DamageError as error:
        raise InvalidInputError(f"the manifest could not be read back: {error.what}") from None
    except RecursionError:
        raise InvalidInputError("the manifest is nested too deeply to be written") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInputError(f"the manifest cannot be written: {error}") from None


def refuse_unrecoverable(manifest: CheckpointManifest, state_bytes: int | None) -> None:
    """Refuse what recovery would have to skip: better an error now than a gap later."""
    if manifest.version != MANIFEST_VERSION:
        raise InvalidInputError(f"manifests are written in version {MANIFEST_VERSION}")
    if problem := next(unrestorable(manifest, state_bytes), None):
        raise InvalidInputError(f"checkpoint {manifest.checkpoint_id}: {problem}")


def stamped(
    manifest: CheckpointManifest,
    owner: Owner,
    claim: Claim | None,
    written: WrittenSidecar | None,
    layout: Layout,
) -> CheckpointManifest:
    """The manifest as it will be stored: checksum, sizes, writer, generation and timeline."""
    refuse_unrecoverable(manifest, written.length if written else None)
    state_bytes = state_object = checksum = None
    if written is not None:
        state_bytes, checksum = written.length, written.checksum
        if written.key != layout.state(manifest.checkpoint_id):
            state_object = written.key
    elif rule_for(manifest, has_sidecar=False) is ChecksumRule.INLINE:
        checksum = inline_checksum(manifest)
    if manifest.state_checksum not in (None, checksum):
        raise InvalidInputError(
            "the manifest's state_checksum is not that of its state",
            hint="Leave it out: the store computes it.",
        )
    bare = manifest.replace(
        writer=claim.writer if claim else default_writer(),
        generation=claim.generation if claim else owner.generation,
        self_checksum=None,
        supersedes=None,
        timeline=None,
        state_bytes=None,
        state_object=None,
    )
    return sized(
        bare.replace(
            state_checksum=checksum,
            supersedes=[list(limits) for limits in owner.superseded] or None,
            timeline=(claim.timeline if claim else owner.timeline) or None,
            state_bytes=state_bytes,
            state_object=state_object,
        )
    )


def may_replace(stored: StoredManifest | Tombstone, owner: Owner, *, is_claimed: bool) -> bool:
    """Whether a save may put its manifest in place of what is under its id.

    It may when that is a tombstone that no later claim has put there: its own, one that was given
    back unused, or that of a claim that was overtaken. An owner may also replace a manifest that
    came too late.
    """
    if isinstance(stored, Tombstone):
        return stored.generation <= owner.generation
    return is_claimed and arrived_too_late(owner, stored.manifest)


def sized(manifest: CheckpointManifest) -> CheckpointManifest:
    """``size_bytes`` = the state's bytes + the manifest's, encoded with ``size_bytes`` 0."""
    bare = manifest.replace(size_bytes=0)
    return bare.replace(size_bytes=(manifest.state_bytes or 0) + len(bare.to_json()))


def sealed(manifest: CheckpointManifest) -> tuple[CheckpointManifest, bytes]:
    """The manifest with its own checksum, and the bytes to store."""
    data = seal(manifest.to_json())
    return manifest.with_extra(self_checksum=checksum_of(data)), data
