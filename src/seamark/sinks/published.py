"""The epochs that readers of a file sink's folder see, and taking them back."""

from __future__ import annotations

import os

from seamark._common.files import sync_folder
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError
from seamark.sinks.contract import Receipt
from seamark.sinks.epoch_folder import epoch_of, folder_name, read_record
from seamark.sinks.folders import is_there, make_durable_folder, names_in, sync_if_there
from seamark.sinks.schema_checks import local_folder


def read_receipts(path: str | os.PathLike[str]) -> list[Receipt]:
    """The record of every epoch that readers of the folder see, in their order."""
    folder = local_folder(path)
    found = [receipt_in(f"{folder}/{folder_name(epoch)}") for epoch in published_epochs(folder)]
    return [receipt for receipt in found if receipt is not None]


def published_epochs(path: str) -> list[int]:
    """The numbers of the epochs that readers see, in their order."""
    with translate_os_errors("listing", path):
        return sorted(epoch for name in names_in(path) if (epoch := epoch_of(name)))


def receipt_in(target: str) -> Receipt | None:
    """The record of one published epoch; None when there is no such folder."""
    with translate_os_errors("reading", target):
        found = read_record(target)
        if found is None and is_there(target):
            raise DamageError(
                f"{os.path.basename(target)} has no record of what it is",
                where=target,
                hint="Readers take it for an epoch. Bring its _seamark.json back, or move it away.",
            )
    return found.record.receipt if found else None


def unpublish_after(path: str, epoch: int) -> list[int]:
    """Move all later epochs where no reader looks; which they were."""
    taken = [number for number in published_epochs(path) if number > epoch]
    aside = f"{path}/_seamark/unpublished"
    with translate_os_errors("taking back epochs of", path):
        for number in reversed(taken):  # newest first: what is left has no hole
            _put_aside(path, f"{path}/{folder_name(number)}", aside)
        for timeline in names_in(aside):  # also after a call that died before it came to this
            sync_folder(f"{aside}/{timeline}")
        sync_if_there(path)
    return taken


def _put_aside(path: str, target: str, aside: str) -> None:
    try:
        found = read_record(target)
    except DamageError:
        found = None
    folder = f"{aside}/{found.record.receipt.timeline if found else 'unknown'}"
    make_durable_folder(folder, path)
    place, count = f"{folder}/{os.path.basename(target)}", 1
    while is_there(place):
        count += 1
        place = f"{folder}/{os.path.basename(target)}-{count}"
    os.rename(target, place)
    sync_folder(folder)  # before anything makes durable that the old name is gone
