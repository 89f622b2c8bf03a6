"""The folder where the records of an epoch wait for their commit.

::

    {folder}/{pipeline}/{sink}/_seamark/staging/{attempt}/epoch=000042/

Tests: ``tests/integration/test_kafka_sink.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from seamark._common.checks import check_name
from seamark._common.files import require_inside
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError, InvalidInputError
from seamark.sinks.contract import Receipt
from seamark.sinks.epoch_folder import (
    Sealed,
    Versions,
    drop_litter,
    epoch_of,
    find_damage,
    read_record,
    seal_epoch,
)
from seamark.sinks.folders import local_folder, make_folder_below, names_in
from seamark.sinks.staged_epochs import (
    attempt_folder,
    making_durable,
    remove_staged,
    staged_attempts,
    staging_folder,
    staging_into,
)

_PLACES: Final = (
    "It is a folder of a local or shared file system: on a cluster, one that the driver and all "
    "executors have mounted; it has to survive whatever the pipeline is to survive."
)


@dataclass(frozen=True)
class StagedEpoch:
    """An epoch whose files are what was prepared."""

    folder: str
    sealed: Sealed

    @property
    def receipt(self) -> Receipt:
        """Whose rows they are."""
        return self.sealed.record.receipt

    def paths(self, names: list[str] | None = None) -> list[str]:
        """Where some of its files are, or all."""
        wanted = [file.name for file in self.sealed.record.files] if names is None else names
        return [f"{self.folder}/{name}" for name in wanted]


class RecordStaging:
    """The staged epochs of one output."""

    def __init__(self, given: str | os.PathLike[str] | None) -> None:
        self._given = None if given is None else _folder(given)
        self._root = self.path = self._given or ""
        self._known: tuple[str, Versions] | None = None

    def choose(self, pipeline: str, sink: str, default: str | None) -> None:
        """Choose the output's own folder, which is not made here.

        :class:`InvalidInputError` when no folder was given and there is no ``default``.
        """
        root = self._given or default
        if root is None:
            raise InvalidInputError(
                "a KafkaSink needs staging='/folder' for rows that wait for their commit",
                hint=f"{_PLACES} By default it is in the store, which can only be if the store is "
                "a folder and Spark runs on one machine.",
            )
        # an attempt's token is the same for all sinks of an epoch: none may clear another's
        self._root, self.path = root, f"{root}/{check_name(pipeline)}/{check_name(sink)}"
        with translate_os_errors("looking at", self.path):
            require_inside(root, f"{self.path}/")

    def make(self) -> None:
        """Make the output's own folder, so that its name survives a power cut."""
        with translate_os_errors("making", self.path):
            make_folder_below(self._root, self.path)

    @contextmanager
    def writing(self, attempt: str, epoch: int) -> Iterator[str]:
        """The folder to write an attempt's files to, cleared of what was there."""
        self._known = None
        folder = staging_folder(self.path, attempt, epoch)
        with staging_into(folder, self.path):
            yield folder

    def seal(self, receipt: Receipt) -> StagedEpoch:
        """Make what was staged durable."""
        with making_durable(self.path, receipt) as folder:
            drop_litter(folder, empty_files=False)
            sealed, versions = seal_epoch(folder, receipt)
        self._known = (sealed.digest, versions)
        return StagedEpoch(folder, sealed)

    def open(self, attempt: str, epoch: int, digest: str) -> StagedEpoch:
        """What was prepared, after every byte was checked. :class:`DamageError`."""
        folder = staging_folder(self.path, attempt, epoch)
        with translate_os_errors("reading", folder):
            sealed = read_record(folder)
            known = self._known[1] if self._known and self._known[0] == digest else None
            damage: str | None
            if sealed is None:
                damage = "it is gone"
            elif sealed.digest != digest:
                damage = "its record is not the one that the checkpoint knows"
            else:
                damage = _damage(folder, sealed, known)
        if damage or sealed is None:
            raise DamageError(
                f"the staged epoch {epoch} cannot be sent: {damage}",
                where=folder,
                hint="Nothing was shown. Restore the folder from a copy, or roll the pipeline back "
                "to the epoch before.",
            )
        return StagedEpoch(folder, sealed)

    def attempts(self) -> dict[str, list[int]]:
        """Tokens that something is staged under, and of which epochs."""
        found = {}
        for attempt in staged_attempts(self.path):
            with translate_os_errors("listing", self.path):
                names = names_in(attempt_folder(self.path, attempt))
            found[attempt] = [number for name in names if (number := epoch_of(name)) is not None]
        return found

    def remove(self, attempt: str) -> None:
        """Remove what was staged under a token; harmless when nothing was."""
        remove_staged(self.path, attempt)


def _folder(given: str | os.PathLike[str]) -> str:
    return local_folder(given, "the staging of a KafkaSink", _PLACES)


def _damage(folder: str, sealed: Sealed, known: Versions | None) -> str | None:
    try:
        return find_damage(folder, sealed.record, known)
    except FileNotFoundError:
        return "it is being removed"
