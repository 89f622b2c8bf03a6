"""Merges the epochs of closed ranges, in place: readers see each row once at any moment.

A merged copy of the range is made where no reader looks, and made durable. Then the two folders are
exchanged in one step of the file system, and what was there before is removed. A crash leaves the
one or the other, and beside it something that nobody needs.

A reader that has listed the range before the exchange fails when it opens a file, since every name
in the range is a new one. It never sees a mixture: the merged folder has the name of an epoch that
had files itself, so whoever has listed that one before holds at least one name that is gone.

Tests: ``tests/sinks/test_compaction.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seamark._common.exchange import NOT_POSSIBLE, exchange
from seamark._common.file_lock import FileLock
from seamark._common.files import require_inside, sync_folder
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError, RefusedError
from seamark.sinks.contract import Receipt
from seamark.sinks.epoch_folder import (
    EpochRecord,
    drop_litter,
    epoch_of,
    find_damage,
    folder_name,
    read_record,
    seal_epoch,
)
from seamark.sinks.epoch_ranges import (
    all_epochs,
    epochs_in,
    range_name,
    ranges_in,
    read_merged,
    write_merged,
)
from seamark.sinks.folders import is_there, make_durable_folder, names_in, remove_tree

_OURS: Final = "_seamark"
_WORK: Final = f"{_OURS}/compacting"
_LOCK: Final = f"{_OURS}/compacting.lock"

Merge = Callable[[str, list[str], str, int], None]
"""Writes the rows of a range's epochs into a folder: range, its epochs, target, bytes of all."""


@dataclass(frozen=True)
class ClosedRange:
    """A range that can be merged, as it was found."""

    end: int
    folder: str
    records: dict[int, EpochRecord]
    """What each epoch consists of."""

    @property
    def named(self) -> int:
        """The epoch whose name the merged folder gets: the last one that has a file."""
        return max(epoch for epoch, record in self.records.items() if record.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for record in self.records.values() for file in record.files)


def lock_ranges(path: str) -> FileLock:
    """Held while ranges are merged or taken back, so that neither sees the other half-way."""
    return FileLock(f"{path}/{_LOCK}")


def compact(path: str, until: int, merge: Merge, *, empty_files: bool) -> list[int]:
    """Merge each range whose epochs are all at most ``until`` and older than the newest one.

    Returns the last epoch of each range that was merged. :class:`DamageError` when an epoch is not
    what its record says, and :class:`RefusedError` when something else is beside the epochs of a
    range, which would be removed; that range is not changed then.
    """
    done = []
    with translate_os_errors("merging epochs of", path), lock_ranges(path):
        require_inside(path, f"{path}/{_WORK}/")
        _clear(path)
        for end in _closed(path, until):
            closed = _looked_at(end, f"{path}/{range_name(end)}")
            if closed is not None:
                _merge_one(path, closed, merge, empty_files=empty_files)
                done.append(end)
    return done


def _closed(path: str, until: int) -> list[int]:
    """Ranges that nothing is written to any more and nothing is taken back from. Read-only."""
    newest = max(all_epochs(path), default=0)
    ranges = ranges_in(path).items()
    return [
        end
        for end, folder in ranges
        if end <= until and end < newest and not is_there(f"{folder}/_seamark.json")
    ]


def _looked_at(end: int, folder: str) -> ClosedRange | None:
    """The range with its records; None when there is nothing to merge."""
    names = (name for name in names_in(folder) if not name.startswith("."))
    if (stranger := next((name for name in names if epoch_of(name) is None), None)) is not None:
        raise RefusedError(
            f"{folder} holds {stranger!r}, which is no epoch and would be removed",
            hint="The range was not merged. Move it away, then try again.",
        )
    epochs = epochs_in(folder)
    records: dict[int, EpochRecord] = {}
    for number, where in epochs.items():
        sealed = read_record(where)
        damage = "it has no record" if sealed is None else find_damage(where, sealed.record)
        if damage is not None or sealed is None:
            raise DamageError(
                f"epoch {number} is not what was published: {damage}",
                where=where,
                hint="Nothing was merged. Restore the folder from a copy, then try again.",
            )
        records[number] = sealed.record
    if len(records) < 2 or not any(record.files for record in records.values()):
        return None
    return ClosedRange(end, folder, records)


def _merge_one(path: str, closed: ClosedRange, merge: Merge, *, empty_files: bool) -> None:
    work = f"{path}/{_WORK}"
    copy = f"{work}/{range_name(closed.end)}"
    rows = f"{copy}/{folder_name(closed.named)}"
    make_durable_folder(copy, path)
    epochs = [f"{closed.folder}/{folder_name(number)}" for number in closed.records]
    merge(closed.folder, epochs, rows, closed.size)
    drop_litter(rows, empty_files=empty_files)
    receipts = [record.receipt for record in closed.records.values()]
    sealed, _ = seal_epoch(rows, _receipt_of(receipts, closed.named))
    if not sealed.record.files:
        raise DamageError("the merged copy has no file", where=rows, hint="Try again.")
    write_merged(copy, receipts)
    sync_folder(copy)
    sync_folder(work)
    try:
        exchange(closed.folder, copy)
    except OSError as error:
        if error.errno in NOT_POSSIBLE:
            raise _not_possible(path) from error
        raise
    # before anything is removed: after a power cut one of the two is there, whole
    sync_folder(path)
    sync_folder(work)
    remove_tree(copy)


def _receipt_of(receipts: list[Receipt], epoch: int) -> Receipt:
    return next(receipt for receipt in receipts if receipt.epoch == epoch)


def _clear(path: str) -> None:
    """Remove what a compaction that died has left. Readers see a whole range either way."""
    work = f"{path}/{_WORK}"
    if is_there(work):
        # a power cut may have forgotten the exchange: what readers see must be durable first
        sync_folder(path)
        remove_tree(work)
    make_durable_folder(work, path)


def _not_possible(path: str) -> RefusedError:
    return RefusedError(
        "this file system cannot exchange two folders in one step, so nothing was merged",
        where=path,
        hint="ext4, xfs, btrfs, tmpfs and APFS can; NFS cannot. Copy closed epochs elsewhere by a "
        "batch job instead, see docs/sinks.md.",
    )


def require_whole_ranges(path: str, epoch: int) -> None:
    """:class:`RefusedError` when only a part of a merged range would have to be taken back."""
    for folder in ranges_in(path).values():
        merged = read_merged(folder)
        if merged is None or not merged.receipts:
            continue
        first, last = merged.receipts[0].epoch, merged.receipts[-1].epoch
        if first <= epoch < last:
            raise RefusedError(
                f"epochs {first} to {last} were merged: those after {epoch} cannot be taken back "
                "without the others",
                where=os.path.join(path, os.path.basename(folder)),
                hint=f"Roll back to epoch {last} or later, or to before epoch {first}.",
            )
