"""Publishes the epochs of a file sink by one rename each, lists them, and takes them back.

Any process may publish an epoch, as often as it likes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from seamark._common.files import require_inside, sync_folder, sync_folders
from seamark._common.os_errors import translate_os_errors
from seamark._common.retry import TRIES
from seamark.errors import DamageError, LineageError
from seamark.sinks.contract import (
    Identity,
    Receipt,
    another_lineage,
    gone_on,
    require_given_up,
)
from seamark.sinks.epoch_folder import (
    RECORD,
    Sealed,
    Versions,
    epoch_of,
    find_damage,
    read_record,
)
from seamark.sinks.epoch_ranges import (
    MergedReceipts,
    all_epochs,
    epoch_path,
    moved_too_often,
    range_end_of,
    ranges_in,
    read_merged,
    versions_in,
)
from seamark.sinks.folders import (
    is_there,
    is_token,
    local_folder,
    lost_the_race,
    make_durable_folder,
    names_in,
    sync_if_there,
)
from seamark.sinks.staged_epochs import staging_folder

_TRIES: Final = 3


class Prepared(Identity, frozen=True):
    """What a file sink's committable says."""

    sink: str
    digest: str
    """SHA-256 of the epoch's record, and so of everything in the record."""


@dataclass(frozen=True)
class Known:
    """What this process has read and hashed itself, so that it need not read it again."""

    digest: str
    versions: Versions


def publish(
    path: str, prepared: Prepared, known: Known | None = None, per_range: int | None = None
) -> None:
    """Show the epoch to readers; nothing changes when they see it already.

    :class:`LineageError` when something else is in its place, :class:`DamageError` when what was
    staged is not what was prepared, or is gone.
    """
    staged = staging_folder(path, prepared.attempt, prepared.epoch)
    target = epoch_path(path, prepared.epoch, per_range)
    with translate_os_errors("publishing", target):
        require_inside(path, f"{staged}/")  # nothing is moved from, or into, what a link leads to
        require_inside(path, f"{target}/")
        if per_range is not None:
            make_durable_folder(os.path.dirname(target), path)
        for _ in range(_TRIES):  # another process may publish the same epoch in between
            if _is_published(target, prepared) or _rename(staged, target, prepared, known):
                break
        else:
            raise DamageError(
                f"epoch {prepared.epoch} is neither published nor staged any more",
                where=f"{target}, {staged}",
                hint="Was the folder emptied, moved or not mounted? Bring it back, or roll the "
                "pipeline back to the epoch before.",
            )
        # in this order: a power cut may leave both names of the folder, never none
        sync_folder(os.path.dirname(target))
        sync_if_there(os.path.dirname(staged))
        with suppress(OSError):
            os.rmdir(os.path.dirname(staged))


def _is_published(target: str, prepared: Prepared) -> bool:
    published, is_taken = _record_of(target)
    if not is_taken:
        merged = MergedReceipts().receipt(target, prepared.epoch)
        if merged is not None and not prepared.is_shown_by(merged):
            raise another_lineage(merged, prepared, target)
        return merged is not None
    if published is None:
        raise LineageError(
            f"{os.path.basename(target)} is there, but no FileSink has published it",
            where=target,
            hint="Move it away: readers take it for an epoch. Then start again.",
        )
    receipt = published.record.receipt
    if not prepared.is_shown_by(receipt):
        raise another_lineage(receipt, prepared, target)
    is_prepared = published.digest == prepared.digest
    if not is_prepared and MergedReceipts().receipt(target, prepared.epoch) is None:
        raise DamageError(
            "the published epoch is not the one that was prepared, though all its names agree",
            where=target,
            hint="Was one attempt staged twice? Take the epoch back and run it again.",
        )
    return True


def _record_of(target: str) -> tuple[Sealed | None, bool]:
    """The record of a folder that readers see, and whether its name is taken.

    A folder without a record is looked at again: others may just have published it or taken it
    back.
    """
    for _ in range(_TRIES):
        sealed = read_record(target)
        if sealed is not None or not is_there(target):
            return sealed, sealed is not None
    return None, True


def _rename(staged: str, target: str, prepared: Prepared, known: Known | None) -> bool:
    """Rename what was staged; False when it is not there or somebody else was faster."""
    try:
        sealed = read_record(staged)
        if sealed is None and not is_there(staged):
            return False
        damage = _damage(staged, sealed, prepared.digest, known)
        if damage is not None:
            raise DamageError(
                f"epoch {prepared.epoch} cannot be published: {damage}",
                where=staged,
                hint="Nothing was shown. Roll the pipeline back to the epoch before; it then "
                "writes these rows again.",
            )
        # a rename onto an empty folder succeeds: nobody ever makes the target beforehand
        os.rename(staged, target)
    except OSError as error:
        if lost_the_race(error):
            return False
        raise
    return True


def _damage(staged: str, sealed: Sealed | None, digest: str, known: Known | None) -> str | None:
    if sealed is None:
        return "it was staged, but never prepared"
    if sealed.digest != digest:
        return "its record is not the one that the checkpoint knows"
    fresh = known is not None and known.digest == digest
    return find_damage(staged, sealed.record, known.versions if known and fresh else None)


def read_receipts(path: str | os.PathLike[str]) -> list[Receipt]:
    """The record of every epoch that readers of the folder see, in their order.

    They are of one history: when epochs are taken back meanwhile, all are read again.
    """
    folder = local_folder(path)
    with translate_os_errors("listing", folder):
        for _ in range(TRIES):
            before = versions_in(folder)
            try:
                receipts = _receipts_at(before)
            except DamageError:
                if before.items() <= versions_in(folder).items():
                    raise
                continue
            # what is published meanwhile is no reason: it comes after what is there
            if before.items() <= versions_in(folder).items():
                return [receipt for _, receipt in sorted(receipts.items())]
    raise moved_too_often(folder)


def _receipts_at(paths: Iterable[str]) -> dict[int, Receipt]:
    """By epoch, the receipts in folders of epochs and in records of merged ranges."""
    receipts: dict[int, Receipt] = {}
    for path in paths:
        above, name = os.path.split(path)
        if name == RECORD:
            merged = read_merged(above)
            receipts |= {one.epoch: one for one in (merged.receipts if merged else ())}
        elif (receipt := receipt_in(path)) is not None:
            receipts[receipt.epoch] = receipt
    return receipts


def published_epochs(path: str) -> list[int]:
    """The numbers of the folders of epochs that readers see, in their order."""
    with translate_os_errors("listing", path):
        return list(all_epochs(path))


def receipt_in(target: str, merged: MergedReceipts | None = None) -> Receipt | None:
    """The record of one published epoch; None when there is no such folder.

    ``merged`` is given by whoever asks for many: the record of a range is then read once.
    """
    with translate_os_errors("reading", target):
        sealed, is_taken = _record_of(target)
        if sealed is None and is_taken:
            raise DamageError(
                f"{os.path.basename(target)} has no record of what it is",
                where=target,
                hint="Readers take it for an epoch. Bring its _seamark.json back, or move it away.",
            )
        if sealed is None and (epoch := epoch_of(os.path.basename(target))) is not None:
            return (merged or MergedReceipts()).receipt(target, epoch)
    return sealed.record.receipt if sealed else None


def unpublish_after(path: str, epoch: int, of: str | None = None) -> list[int]:
    """Move all later epochs to where no reader looks, and return their numbers.

    A merged range goes as a whole; see :func:`seamark.sinks.compaction.require_whole_ranges`.
    :class:`LineageError` when the newest one is not of the timeline ``of``, or when others have
    come to the places of those that were there: another process has gone on.
    """
    aside = f"{path}/_seamark/unpublished"
    taken: list[int] = []
    with translate_os_errors("taking back epochs of", path):
        later = _later(path, epoch)
        # in the order in which others would show new ones: the newest is looked at last
        seen = {folder: _newest_in(folder) for folder, _ in reversed(later)}
        if shown := [receipt for receipt in seen.values() if receipt is not None]:
            require_given_up(shown[-1], of, path)
        for folder, numbers in later:
            _put_aside(path, folder, seen[folder], aside)
            taken += numbers
        # also for an earlier call that died before this step; another name is not ours
        sync_folders(f"{aside}/{name}" for name in names_in(aside) if is_token(name))
        for above in (*ranges_in(path).values(), path):
            sync_if_there(above)
    return sorted(taken)


def _later(path: str, epoch: int) -> list[tuple[str, list[int]]]:
    """Folders with epochs after this one and which they hold, the newest first: no hole is left."""
    later: list[tuple[int, str, list[int]]] = []
    merged_folders: set[str] = set()
    for folder in ranges_in(path).values():
        merged = read_merged(folder)
        if merged is None:
            continue
        merged_folders.add(folder)
        numbers = [receipt.epoch for receipt in merged.receipts]
        if numbers and numbers[0] > epoch:
            later.append((numbers[-1], folder, numbers))
    for number, folder in all_epochs(path).items():
        if number > epoch and os.path.dirname(folder) not in merged_folders:
            later.append((number, folder, [number]))
    return [(folder, numbers) for _, folder, numbers in sorted(later, reverse=True)]


def _put_aside(path: str, target: str, seen: Receipt | None, aside: str) -> None:
    """Move a folder away that may be gone; what has come to its place since it was seen stays."""
    folder = f"{aside}/{seen.timeline if seen is not None else 'unknown'}"
    make_durable_folder(folder, path)
    place, count = f"{folder}/{os.path.basename(target)}", 1
    while is_there(place):
        count += 1
        place = f"{folder}/{os.path.basename(target)}-{count}"
    now = _newest_in(target)
    if now == seen and is_there(target):
        try:
            os.rename(target, place)
        except FileNotFoundError:
            if is_there(target):
                raise
            return
        now = _newest_in(place, like=target)
        if now is not None and now != seen:  # it came between the look and the rename
            os.rename(place, target)
        else:
            sync_folder(folder)  # before anything makes durable that the old name is gone
    if now is not None and now != seen:
        raise gone_on(now, target)


def _newest_in(folder: str, like: str = "") -> Receipt | None:
    """The record of an epoch, or of the last one of a merged range; None when there is none.

    ``like`` is the name that the folder had when readers found it.
    """
    try:
        if range_end_of(os.path.basename(like or folder)) is not None:
            merged = read_merged(folder)
            return merged.receipts[-1] if merged is not None else None
        sealed = read_record(folder)
    except DamageError:
        return None
    return sealed.record.receipt if sealed is not None else None
