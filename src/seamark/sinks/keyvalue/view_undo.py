"""What a view showed before an epoch, kept next to the epoch's rows so that it can be taken back.

::

    {folder}/_seamark/kept/{attempt}/epoch=000042/      the rows of the epoch
    {folder}/_seamark/kept/{attempt}/before-{digest}/   the rows that it replaced

The view has the digest, in the transaction that applied the epoch. So of several folders, which
processes that died or were overtaken have left, the right one is known, and nobody else's is taken
for it. An earlier version has noted no digest, and called the folder ``before``.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.files import read_file, sync_folder
from seamark._common.json_documents import UNREADABLE
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError
from seamark.limits import LARGEST_DOCUMENT
from seamark.progress.session import Session
from seamark.sinks.epoch_folder import find_damage, read_record, seal_epoch
from seamark.sinks.folders import check_token, is_there, lost_the_race, remove_tree
from seamark.sinks.keyvalue.view import (
    TIMES,
    VIEW,
    Effect,
    StagedEpoch,
    before_epoch,
    forget_epoch,
    packed_time,
    unpacked_time,
)
from seamark.sinks.keyvalue.view_columns import KEY, TIME, VALUE

if TYPE_CHECKING:
    import pyarrow as pa

_BEFORE: Final = "before"
_ROWS: Final = "rows.parquet"
_ABOUT: Final = "sources.json"


class SourcesBefore(msgspec.Struct, frozen=True):
    """How far the sources had come before an epoch."""

    checkpoints: dict[str, tuple[int, bytes | None]]
    config_hash: int | None


def _folder(epoch_folder: str, digest: str | None) -> str:
    name = _BEFORE if digest is None else f"{_BEFORE}-{check_token(digest, 'a digest')}"
    return f"{os.path.dirname(epoch_folder)}/{name}"


def can_be_taken_back(session: Session, epoch_folder: str, epoch: int) -> bool:
    """Whether it is known what the view showed before the epoch of this folder.

    :class:`DamageError` when it was written down, and is not whole.
    """
    digest = before_epoch(session, epoch)
    if digest == "":
        return False
    folder = _folder(epoch_folder, digest)
    with translate_os_errors("reading", folder):
        if not is_there(folder):
            return False
        _require_whole(folder, digest)
    return True


def keep_what_was(session: Session, epoch_folder: str, staged: StagedEpoch, effect: Effect) -> str:
    """Write down, durably, what applying an epoch is about to replace; its digest."""
    import pyarrow as pa
    from pyarrow import parquet

    store = session.store
    if staged.replace:
        was: dict[bytes, bytes | None] = dict(store.items(VIEW))
    else:
        touched = [*effect.upserts, *effect.gone]
        was = dict(zip(touched, session.get_many(VIEW, touched), strict=True))
    times = session.get_many(TIMES, list(was)) if effect.has_times else [None] * len(was)
    table = pa.table(
        {
            KEY: pa.array(was.keys(), pa.binary()),
            VALUE: pa.array(was.values(), pa.binary()),
            TIME: pa.array([at and unpacked_time(at) for at in times], pa.int64()),
        }
    )
    recorded = store.read_overview()
    sources = SourcesBefore(
        {name: (c.sequence, c.source_position) for name, c in recorded.checkpoints.items()},
        recorded.config_hash,
    )
    made = f"{os.path.dirname(epoch_folder)}/{_BEFORE}.{uuid.uuid4().hex}"
    with translate_os_errors("keeping what was in", made):
        os.mkdir(made)
        parquet.write_table(table, f"{made}/{_ROWS}")
        with open(f"{made}/{_ABOUT}", "wb") as file:
            file.write(msgspec.json.encode(sources))
        sealed, _ = seal_epoch(made, staged.receipt)
        folder = _folder(epoch_folder, sealed.digest)
        try:
            os.rename(made, folder)
        except OSError as error:
            if not (lost_the_race(error) and is_there(folder)):
                raise
            # another process applies the same epoch to the same rows, or has died in doing so
            remove_tree(made)
        sync_folder(os.path.dirname(folder))
    return sealed.digest


def take_back(session: Session, epoch_folder: str, staged: StagedEpoch) -> None:
    """Stage that the view shows again what it showed before an epoch."""
    digest = before_epoch(session, staged.receipt.epoch)
    table, sources = _read(_folder(epoch_folder, digest), digest)
    keys, values, times = (table[name].to_pylist() for name in (KEY, VALUE, TIME))
    if staged.replace:
        session.clear(VIEW)
        session.clear(TIMES)
    gone = [key for key, value in zip(keys, values, strict=True) if value is None]
    session.delete_many(VIEW, gone)
    session.put_many(VIEW, ((k, v) for k, v in zip(keys, values, strict=True) if v is not None))
    timed = {key: at for key, at in zip(keys, times, strict=True) if at is not None}
    session.delete_many(TIMES, (key for key in keys if key not in timed))
    session.put_many(TIMES, ((key, packed_time(at)) for key, at in timed.items()))
    forget_epoch(session, staged)
    session.forget_checkpoints()
    for name, (sequence, position) in sources.checkpoints.items():
        session.stage_checkpoint(name, sequence, position)
    if sources.config_hash is not None:
        session.stage_config_hash(sources.config_hash)


def _read(folder: str, digest: str | None) -> tuple[pa.Table, SourcesBefore]:
    from pyarrow import parquet

    with translate_os_errors("reading", folder):
        _require_whole(folder, digest)
        try:
            sources = msgspec.json.decode(
                read_file(folder, _ABOUT, LARGEST_DOCUMENT), type=SourcesBefore
            )
        except UNREADABLE as error:
            raise DamageError(f"{folder}/{_ABOUT} cannot be read: {error}") from None
        return parquet.read_table(f"{folder}/{_ROWS}"), sources


def _require_whole(folder: str, digest: str | None) -> None:
    sealed = read_record(folder)
    if sealed is None:
        damage: str | None = "it is not complete"
    elif digest not in (None, sealed.digest):
        damage = "it is not what the view has noted"
    else:
        damage = find_damage(folder, sealed.record)
    if damage:
        raise DamageError(
            f"what the view showed before an epoch cannot be read: {damage}",
            where=folder,
            hint="Nothing was changed. Restore the folder from a copy, or start the view "
            "over: give it a new target, with policy='auto_reset'.",
        )
