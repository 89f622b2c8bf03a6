"""Epochs grouped in folders, so that a whole range can be exchanged for its merged copy at once.

::

    {path}/upto=001000/epoch=000042/part-….parquet   an epoch of the range that ends with 1000
    {path}/upto=001000/_seamark.json                 which epochs were merged, once they were

Without ranges the epochs are directly in ``{path}``.

Tests: ``tests/sinks/test_compaction.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from seamark._common.files import (
    ABSENT,
    a_link,
    read_file,
    require_no_link,
    version_of_file,
    write_file,
)
from seamark._common.json_documents import UNREADABLE, seal, unseal
from seamark._common.retry import TRIES
from seamark.errors import DamageError, SeamarkError, StoreUnavailableError
from seamark.sinks.contract import Receipt
from seamark.sinks.epoch_folder import RECORD, epoch_of, folder_name
from seamark.sinks.folders import check_token, names_in

RANGE_COLUMN: Final = "upto"
_NAME: Final = re.compile(r"upto=(\d{6,})")


class MergedEpochs(msgspec.Struct, frozen=True):
    """Stored in the folder of a range whose epochs were merged into one."""

    receipts: tuple[Receipt, ...]
    """Of all epochs that were merged, in their order, without their plans."""
    version: int = 1


def range_end(epoch: int, per_range: int) -> int:
    """The last epoch of the range that an epoch belongs to."""
    return -(-epoch // per_range) * per_range


def range_name(end: int) -> str:
    """The name of the folder that holds a range."""
    return f"{RANGE_COLUMN}={end:06}"


def range_end_of(name: str) -> int | None:
    """The last epoch of the range that a folder of this name holds, or None for any other name."""
    match = _NAME.fullmatch(name)
    end = int(match[1]) if match else 0
    return end if end > 0 and range_name(end) == name else None


def epoch_path(path: str, epoch: int, per_range: int | None) -> str:
    """Where readers find an epoch."""
    if per_range is None:
        return f"{path}/{folder_name(epoch)}"
    return f"{path}/{range_name(range_end(epoch, per_range))}/{folder_name(epoch)}"


def ranges_in(path: str) -> dict[int, str]:
    """The folders of all ranges, by the last epoch of each, in their order.

    :class:`StoreUnavailableError` when one is a link: epochs would be moved out of another place.
    """
    ends = sorted(end for name in names_in(path) if (end := range_end_of(name)))
    folders = {end: f"{path}/{range_name(end)}" for end in ends}
    for folder in folders.values():
        require_no_link(folder)
    return folders


def epochs_in(folder: str) -> dict[int, str]:
    """The folders of the epochs directly in a folder, in their order.

    :class:`StoreUnavailableError` when one is a link: rows of another place would be read or moved.
    """
    is_link: dict[int, bool] = {}
    try:
        with os.scandir(folder) as entries:  # which tells links without a look at each of them
            for entry in entries:
                if epoch := epoch_of(entry.name):
                    is_link[epoch] = entry.is_symlink()
    except OSError as error:
        if error.errno not in ABSENT:
            raise
    folders = {number: f"{folder}/{folder_name(number)}" for number in sorted(is_link)}
    for number, path in folders.items():
        if is_link[number]:
            raise a_link(path)
    return folders


def all_epochs(path: str) -> dict[int, str]:
    """The folders of all epochs that readers find, in ranges or not, in their order."""
    found = epochs_in(path)
    for folder in ranges_in(path).values():
        found |= epochs_in(folder)
    return dict(sorted(found.items()))


def version_at(path: str) -> object:
    """Tells a folder from another one that had its name before or has it later; None for none."""
    try:
        return version_of_file(os.lstat(path))
    except FileNotFoundError:
        return None


def versions_in(path: str) -> dict[str, object]:
    """The folders of all epochs and the records of merged ranges, each with its version."""
    records = [f"{folder}/{RECORD}" for folder in ranges_in(path).values()]
    found = {one: version_at(one) for one in (*all_epochs(path).values(), *records)}
    return {one: version for one, version in found.items() if version is not None}


def moved_too_often(where: str) -> StoreUnavailableError:
    """The error for a folder whose epochs have changed during every read of them."""
    return StoreUnavailableError(
        f"epochs were merged or taken back while they were being read, {TRIES} times in a row",
        where=where,
        hint="That says nothing about what the folder holds. Read it again later.",
    )


def read_merged(range_folder: str) -> MergedEpochs | None:
    """Which epochs of a range were merged; None when none were."""
    require_no_link(range_folder)
    try:
        data = read_file(range_folder, RECORD)
    except FileNotFoundError:
        return None
    try:
        merged = msgspec.json.decode(unseal(data), type=MergedEpochs)
        for receipt in merged.receipts:
            check_token(receipt.timeline, "a timeline")
    except (DamageError, *UNREADABLE) as error:
        raise DamageError(
            f"the record {range_folder}/{RECORD} is damaged: {error}",
            hint="The rows next to it may be intact. Restore the folder from a copy.",
        ) from error
    return merged


def write_merged(range_folder: str, receipts: list[Receipt]) -> None:
    """Note durably which epochs were merged."""
    without_plans = (msgspec.structs.replace(receipt, plan=None) for receipt in receipts)
    record = MergedEpochs(tuple(without_plans))
    write_file(f"{range_folder}/{RECORD}", seal(msgspec.json.encode(record)), durable=True)


class MergedReceipts:
    """Looks up epochs that were merged. A record is read again only when it was written again."""

    def __init__(self) -> None:
        self._version: object = None
        self._receipts: Mapping[int, Receipt] = {}

    def receipt(self, target: str, epoch: int) -> Receipt | None:
        """The record of an epoch that was merged with others, by the folder that it once had."""
        above = os.path.dirname(target)
        if range_end_of(os.path.basename(above)) is None:
            return None
        require_no_link(above)
        try:
            version = above, version_of_file(os.lstat(f"{above}/{RECORD}"))
        except FileNotFoundError:
            return None
        if version != self._version:
            merged = read_merged(above)
            if merged is None:
                return None
            self._receipts = {receipt.epoch: receipt for receipt in reversed(merged.receipts)}
            self._version = version
        return self._receipts.get(epoch)


class MergedSpans:
    """Which epochs were merged together: each record is read once for all sinks.

    That holds however a path is spelled, and whatever links lead to the record.
    """

    def __init__(self) -> None:
        self._spans: dict[tuple[int, int], tuple[int, int] | None] = {}

    def beyond(self, path: str, epoch: object, per_range: object) -> int | None:
        """The last of the epochs that this one was merged with, if it is not the last itself.

        None also for a folder that cannot be seen from here.
        """
        if not (isinstance(epoch, int) and isinstance(per_range, int) and per_range > 0):
            return None
        try:
            folder = f"{path}/{range_name(range_end(epoch, per_range))}"
            require_no_link(folder)
            record = os.lstat(f"{folder}/{RECORD}")
        except (OSError, ValueError, SeamarkError):  # path and number may be anybody's
            return None
        which = (record.st_dev, record.st_ino)
        if which not in self._spans:
            self._spans[which] = _span(folder)
        first, last = self._spans[which] or (0, 0)
        return last if first <= epoch < last else None


def _span(range_folder: str) -> tuple[int, int] | None:
    """The first and the last epoch of a range that were merged."""
    try:
        merged = read_merged(range_folder)
    except (OSError, ValueError, SeamarkError):  # the record may be anybody's as well
        return None
    if merged is None or not merged.receipts:
        return None
    return merged.receipts[0].epoch, merged.receipts[-1].epoch
