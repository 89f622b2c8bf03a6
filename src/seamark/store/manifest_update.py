"""Updating a stored manifest: what may change, and everything else byte for byte as it was.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from seamark.blobs.checksummed_json import is_sealed, seal, unseal
from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import NAMED_FIELDS, SEAMARK_FIELDS, SELF_CHECKSUM, CheckpointManifest
from seamark.store.manifests import StoredManifest

_V = TypeVar("_V")

_MAY_CHANGE: Final = frozenset({"sink_commit_statuses", "sink_epochs"})
_STAMPED: Final = frozenset({"state_checksum", "size_bytes"})
_FIXED_EXTRA: Final = frozenset(
    {SELF_CHECKSUM, "writer", "generation", "timeline", "state_bytes", "state_object", "supersedes"}
)


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


def rebased(
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
        name for name in fixed & update.extra.keys() if update.extra[name] != stored.extra.get(name)
    )
    if changed:
        raise RefusedError(
            f"an update may not change {', '.join(changed)} of checkpoint {stored.checkpoint_id}",
            hint="Only sink statuses, sink epochs and extra fields can change; "
            "anything else is a new checkpoint.",
        )
    if update.checkpoint_id != stored.checkpoint_id:
        raise InvalidInputError("the update is of another checkpoint")
