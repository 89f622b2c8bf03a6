"""Whose folder it is: a file sink's folder belongs to one output of one pipeline.

Tests: ``tests/sinks/test_opening.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE, seal, unseal
from seamark._common.os_errors import translate_os_errors
from seamark.blobs.contract import KeyExists
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import DamageError, RefusedError
from seamark.sinks.epoch_folder import epoch_of
from seamark.sinks.folders import names_in

_KEY: Final = "sink.json"
_LIMIT: Final = 1 << 20
_OTHER_TABLES: Final = {
    "_spark_metadata": "Spark's own file sink wrote here, and Spark reads only what that one lists",
    "_delta_log": "it is a Delta table, and readers of Delta do not see other files",
    ".hoodie": "it is a Hudi table, and readers of Hudi do not see other files",
}


class Target(msgspec.Struct, frozen=True):
    """What a folder is for."""

    pipeline: str
    sink: str
    format: str
    partition_by: tuple[str, ...]
    version: int = 1


def claim_folder(
    path: str, pipeline: str, sink: str, file_format: str, partition_by: Sequence[str]
) -> None:
    """Make the folder, durably, and note whose it is.

    :class:`RefusedError` when it belongs to somebody else, or holds what readers would mix up.
    """
    _refuse_strangers(path)
    ours = Target(pipeline, sink, file_format, (*partition_by,))
    blobs = FilesystemBlobs(f"{path}/_seamark")
    try:
        blobs.create(_KEY, seal(msgspec.json.encode(ours)))
    except KeyExists:
        stored = _read(blobs, path)
        if stored != ours:
            raise _refusal(stored, ours, path) from None


def _refuse_strangers(path: str) -> None:
    with translate_os_errors("listing", path):
        names = names_in(path)
    for name, reason in _OTHER_TABLES.items():
        if name in names:
            raise RefusedError(
                f"{path} cannot take the files of a FileSink: {reason}",
                hint="Give it a folder of its own.",
            )
    visible = (name for name in names if not name.startswith((".", "_")))
    stranger = next((name for name in visible if epoch_of(name) is None), None)
    if stranger is not None:
        raise RefusedError(
            f"{path} holds {stranger!r}, which readers would mix up with the epochs",
            hint="Give the FileSink an empty folder, or one that it has written before.",
        )


def _read(blobs: FilesystemBlobs, path: str) -> Target:
    blob = blobs.read(_KEY, _LIMIT)
    try:
        return msgspec.json.decode(unseal(blob.data if blob else b""), type=Target)
    except (DamageError, *UNREADABLE) as error:
        raise DamageError(
            f"{path}/_seamark/{_KEY} is damaged: {error}",
            hint="It only says whose folder this is: remove it when you are sure, and start again.",
        ) from error


def _refusal(stored: Target, ours: Target, path: str) -> RefusedError:
    if (stored.pipeline, stored.sink) != (ours.pipeline, ours.sink):
        return RefusedError(
            f"the folder belongs to the output {stored.sink!r} of the pipeline {stored.pipeline!r}",
            where=path,
            hint=f"Give {ours.sink!r} of {ours.pipeline!r} a folder of its own.",
        )
    if stored.format != ours.format:
        return RefusedError(
            f"the folder holds {stored.format}, and {ours.format} next to it could not be read",
            where=path,
            hint="Keep the format, or write to a new folder.",
        )
    if stored.partition_by != ours.partition_by:
        was, is_now = (", ".join(one.partition_by) or "nothing" for one in (stored, ours))
        return RefusedError(
            f"the folder is partitioned by {was}, not by {is_now}: readers refuse a mixture",
            where=path,
            hint="Keep partition_by, or write to a new folder.",
        )
    return RefusedError(
        "the folder was set up by a newer Seamark", where=path, hint="Update this one."
    )
