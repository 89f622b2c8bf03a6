"""What a snapshot says about its files: which it took itself, and which a restore needs in all.

A chain of snapshots may hold more than one history of a directory: the query was rolled back, or a
batch was replayed. So a restore takes exactly the files that the newest of the chain names, in the
version that was stored last, and never chooses among what lies there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.capture.capture import FILE_LIST, LOG
from seamark.capture.placement import contents_of
from seamark.capture.readers import Contents
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore


class FileList(msgspec.Struct, frozen=True):
    """The list in a snapshot's own log pack."""

    taken: dict[str, str]
    """Path → version of the file, as reported by its place, or the SHA-256 of a log."""
    needed: list[str]
    """Every file of the batch."""


def encode_file_list(listed: FileList) -> bytes:
    """The list as it is stored."""
    return msgspec.json.encode(listed)


def file_list_in(logs: Contents) -> FileList | None:
    """The list among the logs of a checkpoint; None when they have none."""
    data = logs.get(FILE_LIST)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=FileList)
    except UNREADABLE as error:
        raise DamageError(f"the list of a snapshot's files cannot be read: {error}") from None


def logs_of(store: CheckpointStore, manifest: CheckpointManifest) -> Contents:
    """The logs that one checkpoint holds itself; nothing else is read."""
    return {
        path: data
        for _, contents, _ in contents_of(store, manifest, only=LOG)
        for path, data in contents.items()
    }


def needed_files(store: CheckpointStore, chain: Sequence[CheckpointManifest]) -> list[str] | None:
    """What a restore of the newest of a chain writes; None when that is not a snapshot's chain."""
    for manifest in reversed(chain):
        # a checkpoint that a rollback of the store has made holds nothing itself
        if manifest.operator_states:
            listed = file_list_in(logs_of(store, manifest))
            return None if listed is None else listed.needed
    return None
