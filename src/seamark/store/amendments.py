"""Updating a stored manifest: what may change, and everything else byte for byte as it was."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import NAMED_FIELDS, SELF_CHECKSUM, CheckpointManifest
from seamark.store.manifests import Found
from seamark.store.ownership import default_writer
from seamark.store.sealed import is_sealed, seal, unseal

_MAY_CHANGE: Final = frozenset({"sink_commit_statuses", "sink_epochs"})
_STAMPED: Final = frozenset({"state_checksum", "size_bytes"})
_FIXED_EXTRA: Final = frozenset(
    {SELF_CHECKSUM, "writer", "generation", "timeline", "state_bytes", "state_object", "supersedes"}
)


def amended(found: Found, update: CheckpointManifest) -> tuple[CheckpointManifest, bytes]:
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
    members.setdefault("writer", default_writer())  # from here on it is sealed, hence ours
    members["size_bytes"] = 0
    bare = msgspec.json.encode(members)
    members["size_bytes"] = (stored.state_bytes or 0) + len(bare)
    document = msgspec.json.encode(members)
    return CheckpointManifest.from_json(document), seal(document)


def _refuse_other_changes(stored: CheckpointManifest, update: CheckpointManifest) -> None:
    changed = [
        name
        for name in sorted(NAMED_FIELDS - _MAY_CHANGE - _STAMPED)
        if getattr(stored, name) != getattr(update, name)
    ]
    if update.state_checksum not in (None, stored.state_checksum):
        changed.append("state_checksum")
    changed += sorted(
        name
        for name in _FIXED_EXTRA & update.extra.keys()
        if update.extra[name] != stored.extra.get(name)
    )
    if changed:
        raise RefusedError(
            f"an update may not change {', '.join(changed)} of checkpoint {stored.checkpoint_id}",
            hint="Only sink statuses, sink epochs and extra fields can change; "
            "anything else is a new checkpoint.",
        )
    if update.checkpoint_id != stored.checkpoint_id:
        raise InvalidInputError("the update is of another checkpoint")
