"""What a checkpoint keeps of an epoch that is staged for a Delta table.

Tests: ``tests/sinks/test_delta.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.errors import DamageError
from seamark.sinks.contract import Identity
from seamark.sinks.delta.actions import StagedFile


class FileList(msgspec.Struct, frozen=True):
    """What an epoch adds to the table."""

    columns: dict[str, Any]
    """The type of each column that was written."""
    files: list[StagedFile]


def list_in(data: bytes, where: str) -> FileList:
    """What :class:`FileList` was written as; :class:`DamageError` for anything else."""
    try:
        return msgspec.json.decode(data, type=FileList)
    except UNREADABLE as error:
        raise DamageError(
            f"the list of the files of an epoch cannot be read: {error}", where=where
        ) from None


class Prepared(Identity, frozen=True):
    """What another process needs to show an epoch."""

    pipeline: str
    sink: str
    table_id: str
    mode: str
    rows: int
    added: FileList | None = None
    list_digest: str = ""
    keys: list[str] | None = None
    """What rows are merged by; None in what an earlier Seamark has prepared."""
    delete_where: str | None = None


def kept_list(data: bytes, prepared: Prepared, where: str) -> FileList:
    """The list that was kept beside the table, which a checkpoint may repeat.

    :class:`DamageError` when the checkpoint has another: what an entry of the log says of a file
    decides what all readers of the table see of it.
    """
    kept = list_in(data, where)
    if prepared.added not in (None, kept):
        raise DamageError(
            f"the checkpoint has another list of the files of epoch {prepared.epoch} than the one "
            "that was kept beside the table",
            where=where,
            hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back to "
            "the newest epoch that the table shows.",
        )
    return kept
