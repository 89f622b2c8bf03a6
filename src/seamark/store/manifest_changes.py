"""What the store adds to a manifest when it is saved, and what an update may change later.

An update leaves everything else byte for byte as it was.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from seamark._common.checks import check_id
from seamark._common.json_documents import SELF_CHECKSUM, checksum_of, is_sealed, seal, unseal
from seamark._common.text import default_writer
from seamark.errors import DamageError, InvalidInputError, OutcomeUnknownError, RefusedError
from seamark.manifest import NAMED_FIELDS, SEAMARK_FIELDS, CheckpointManifest
from seamark.manifest.decisions import DECIDED_FACTS
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.store.layout import Layout
from seamark.store.manifests import MANIFEST_VERSION, StoredManifest, Tombstone
from seamark.store.owner import Owner, arrived_too_late
from seamark.store.ownership import Claim
from seamark.store.sidecars import WrittenSidecar, inline_checksum

_V = TypeVar("_V")

_MAY_CHANGE: Final = frozenset({"sink_commit_statuses", "sink_epochs"})
_STAMPED: Final = frozenset({"state_checksum", "size_bytes"})
_FIXED_EXTRA: Final = DECIDED_FACTS | {SELF_CHECKSUM, "decision", "state_object"}


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
    elif manifest.has_inline_state:
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


def amended(found: StoredManifest, update: CheckpointManifest) -> tuple[CheckpointManifest, bytes]:
    """The stored manifest with the update's statuses, epochs and extra fields, and its bytes.

    Members are carried over as raw JSON, so that fields inside of fields which this version does
    not know stay too.
    """
    stored = found.manifest
    _refuse_other_changes(stored, update)
    document = unseal(found.data) if is_sealed(found.data) else found.data
    members: dict[str, Any] = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    members["sink_commit_statuses"] = {
        sink: status.to_builtins() for sink, status in update.sink_commit_statuses.items()
    }
    members["sink_epochs"] = update.sink_epochs
    members.update({k: v for k, v in update.extra.items() if k not in _FIXED_EXTRA})
    members["size_bytes"] = 0
    bare = msgspec.json.encode(members)
    members["size_bytes"] = (stored.state_bytes or 0) + len(bare)
    document = msgspec.json.encode(members)
    # another system's manifest stays its own: a checksum would make it look like one of ours
    data = seal(document) if stored.is_ours else document
    return CheckpointManifest.from_json(data), data


def is_outdated(update: CheckpointManifest, base: StoredManifest) -> bool:
    """Whether an update was made from another version of the manifest than ``base``."""
    return update.self_checksum not in (None, base.manifest.self_checksum)


def rebased_update(
    update: CheckpointManifest, base: CheckpointManifest, now: CheckpointManifest
) -> CheckpointManifest | None:
    """The update on top of what another writer has recorded since ``base`` was read.

    None when both have changed the same sink or field in different ways.
    """
    statuses = _merged(
        base.sink_commit_statuses, update.sink_commit_statuses, now.sink_commit_statuses
    )
    epochs = _merged(base.sink_epochs, update.sink_epochs, now.sink_epochs)
    # an update need not repeat the extra fields that it leaves alone
    extra = _merged(*map(_open_extra, (base.extra, {**base.extra, **update.extra}, now.extra)))
    if statuses is None or epochs is None or extra is None:
        return None
    return update.replace(sink_commit_statuses=statuses, sink_epochs=epochs, extra=extra)


def takes_back(update: CheckpointManifest, now: CheckpointManifest) -> bool:
    """Whether the update would undo the commit of a sink."""
    return any(
        status.is_committed and not update.sink_commit_statuses.get(sink, status).is_committed
        for sink, status in now.sink_commit_statuses.items()
    )


def _open_extra(extra: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if name not in _FIXED_EXTRA}


def _merged(
    base: dict[str, _V], ours: dict[str, _V], theirs: dict[str, _V]
) -> dict[str, _V] | None:
    merged = dict(theirs)
    for key in base.keys() | ours.keys():
        if ours.get(key) == base.get(key):
            continue
        if theirs.get(key) not in (base.get(key), ours.get(key)):
            return None
        if key in ours:
            merged[key] = ours[key]
        else:
            merged.pop(key, None)
    return merged


def _refuse_other_changes(stored: CheckpointManifest, update: CheckpointManifest) -> None:
    changed = [
        name
        for name in sorted(NAMED_FIELDS - _MAY_CHANGE - _STAMPED)
        if getattr(stored, name) != getattr(update, name)
    ]
    if update.state_checksum not in (None, stored.state_checksum):
        changed.append("state_checksum")
    fixed = (_FIXED_EXTRA if stored.is_ours else SEAMARK_FIELDS) - {SELF_CHECKSUM}
    changed += sorted(
        name
        for name in fixed & update.extra.keys()
        if _as_json(update.extra[name]) != _as_json(stored.extra.get(name))
    )
    if changed:
        raise RefusedError(
            f"an update may not change {', '.join(changed)} of checkpoint {stored.checkpoint_id}",
            hint="Only sink statuses and epochs, timings, read points and fields of others can "
            "change; anything else is a new checkpoint.",
        )
    if update.checkpoint_id != stored.checkpoint_id:
        raise InvalidInputError("the update is of another checkpoint")


def _as_json(value: object) -> bytes:
    """For a comparison: what was stored has lists where what is given may have tuples."""
    return msgspec.json.encode(value, order="deterministic")


def unknown_save(checkpoint_id: int, error: Exception) -> OutcomeUnknownError:
    """The error of a save that may have arrived, whatever a later try says."""
    return OutcomeUnknownError(
        f"whether checkpoint {checkpoint_id} was saved is not known",
        where=str(error),
        hint="Nothing was undone. The next start finds out.",
    )
