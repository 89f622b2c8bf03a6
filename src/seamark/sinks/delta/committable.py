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
