"""The folder of a file sink on HDFS: staged epochs, published ones, and those taken back.

Everything that changes what readers see is one rename to a name that is free. HDFS makes it
durable by itself: the NameNode logs it before it answers.

Tests: ``tests/integration/test_hdfs_sink.py``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE, seal, unseal
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.errors import DamageError, LineageError, StoreUnavailableError
from seamark.sinks.contract import Receipt, another_lineage, gone_on, require_given_up
from seamark.sinks.epoch_folder import RECORD, epoch_of, folder_name
from seamark.sinks.folders import check_token, is_token
from seamark.sinks.publish import Prepared
from seamark.sinks.target_checks import (
    TARGET,
    Target,
    encoded_target,
    refuse_strangers,
    require_same_target,
)

_OURS: Final = "_seamark"
_STAGING: Final = f"{_OURS}/staging"
_ASIDE: Final = f"{_OURS}/unpublished"
_TRIES: Final = 3


class HdfsFile(msgspec.Struct, frozen=True):
    """A file of an epoch: its path below the epoch's folder, its size, and HDFS's own checksum."""

    name: str
    size: int
    checksum: str


class HdfsRecord(msgspec.Struct, frozen=True):
    """Stored with an epoch's files, so that one rename publishes rows and record together."""

    receipt: Receipt
    files: tuple[HdfsFile, ...]
    version: int = 1


@dataclass(frozen=True)
class SealedOnHdfs:
    """A record as it was read, and the SHA-256 of its bytes."""

    record: HdfsRecord
    digest: str


class HdfsFolder:
    """A folder that Spark reaches; opened when it is first needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: HadoopDirectory | None = None

    @property
    def _files(self) -> HadoopDirectory:
        if self._opened is None:
            self._opened = HadoopDirectory(self.url)
        return self._opened

    def close(self) -> None:
        """Let go of the file system; it is opened again when it is needed."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def check(self, ours: Target) -> None:
        """:class:`RefusedError` when the folder cannot be claimed; it is not made here."""
        refuse_strangers(self.url, self._files.names(""))
        with suppress(FileNotFoundError):
            require_same_target(self._files.read(f"{_OURS}/{TARGET}"), ours, self.url)

    def claim(self, ours: Target) -> None:
        """Make the folder and note whose it is; :class:`RefusedError` when it is another's."""
        files = self._files
        refuse_strangers(self.url, files.names(""))
        note = f"{_OURS}/{TARGET}"
        for _ in range(_TRIES):
            try:
                require_same_target(files.read(note), ours, self.url)
            except FileNotFoundError:
                # another process may claim it too: neither may rename what the other still writes
                fresh = f"{_OURS}/.{TARGET}.{os.urandom(8).hex()}"
                files.write_stream(fresh, (encoded_target(ours),))
                if files.rename_if_free(fresh, note):
                    return
                files.remove((fresh,))
            else:
                return
        raise StoreUnavailableError(f"{self.url}/{note} comes and goes", hint="Start again.")

    # staging

    def stage(self, attempt: str, epoch: int, write: Callable[[str], None]) -> None:
        """Have the rows of an epoch written where no reader looks."""
        self.remove_staged(attempt)
        folder = _staged(attempt, epoch)
        write(f"{self.url}/{folder}")
        self._files.make_folder(folder)  # an epoch without rows may have none

    def attempts(self) -> list[str]:
        """Tokens that something is staged under. Another name there is nobody's, and left alone."""
        return sorted(name for name in self._files.names(_STAGING) if is_token(name))

    def remove_staged(self, attempt: str) -> None:
        """Remove what was staged under a token; harmless when nothing was."""
        self._files.remove_folder(f"{_STAGING}/{check_token(attempt, 'an attempt')}")

    def seal(self, receipt: Receipt, *, empty_files: bool) -> SealedOnHdfs:
        """Write down what the files of a staged epoch are; :class:`DamageError` if it is gone."""
        files, folder = self._files, _staged(receipt.attempt, receipt.epoch)
        try:
            sizes = files.sizes_below(folder)
        except FileNotFoundError:
            raise DamageError(
                f"what was staged for epoch {receipt.epoch} is gone",
                where=f"{self.url}/{folder}",
                hint="Has another writer, or somebody else, removed it? Start again.",
            ) from None
        litter = [name for name, size in sizes.items() if _is_litter(name, size, empty_files)]
        files.remove(f"{folder}/{name}" for name in litter)
        stored = (
            HdfsFile(name, sizes[name], files.checksum(f"{folder}/{name}"))
            for name in sorted(sizes.keys() - litter)
        )
        record = HdfsRecord(receipt, tuple(stored))
        data = seal(msgspec.json.encode(record))
        files.write_stream(f"{folder}/{RECORD}", (data,))
        return SealedOnHdfs(record, hashlib.sha256(data).hexdigest())

    # what readers see

    def publish(self, prepared: Prepared) -> None:
        """Show the epoch to readers; nothing changes when they see it already.

        :class:`LineageError` when something else is in its place, :class:`DamageError` when what
        was staged is not what was prepared, or is gone.
        """
        staged, target = _staged(prepared.attempt, prepared.epoch), folder_name(prepared.epoch)
        for _ in range(_TRIES):  # another process may publish the same epoch in between
            if self._is_published(target, prepared) or self._rename(staged, target, prepared):
                break
        else:
            raise DamageError(
                f"epoch {prepared.epoch} is neither published nor staged any more",
                where=f"{self.url}/{target}, {self.url}/{staged}",
                hint="Was the folder emptied or moved? Bring it back, or roll the pipeline back to "
                "the epoch before.",
            )
        self.remove_staged(prepared.attempt)

    def _is_published(self, target: str, prepared: Prepared) -> bool:
        published, is_taken = self._record_of(target)
        if not is_taken:
            return False
        if published is None:
            raise LineageError(
                f"{target} is there, but no FileSink has published it",
                where=f"{self.url}/{target}",
                hint="Move it away: readers take it for an epoch. Then start again.",
            )
        if not prepared.is_shown_by(published.record.receipt):
            raise another_lineage(published.record.receipt, prepared, f"{self.url}/{target}")
        if published.digest != prepared.digest:
            raise DamageError(
                "the published epoch is not the one that was prepared, though all its names agree",
                where=f"{self.url}/{target}",
                hint="Was one attempt staged twice? Take the epoch back and run it again.",
            )
        return True

    def _rename(self, staged: str, target: str, prepared: Prepared) -> bool:
        """Rename what was staged; False when it is not there or somebody else was faster."""
        try:
            sealed = self._record(staged)
            if sealed is None and not self._files.is_folder(staged):
                return False
            damage = self._damage(staged, sealed, prepared.digest)
        except FileNotFoundError:
            return False
        if damage is not None:
            raise DamageError(
                f"epoch {prepared.epoch} cannot be published: {damage}",
                where=f"{self.url}/{staged}",
                hint="Nothing was shown. Roll the pipeline back to the epoch before; it then "
                "writes these rows again.",
            )
        return self._files.rename_if_free(staged, target)

    def _damage(self, folder: str, sealed: SealedOnHdfs | None, digest: str) -> str | None:
        if sealed is None:
            return "it was staged, but never prepared"
        if sealed.digest != digest:
            return "its record is not the one that the checkpoint knows"
        there = self._files.sizes_below(folder)
        there.pop(RECORD, None)
        recorded = {file.name: file for file in sealed.record.files}
        if missing := sorted(recorded.keys() - there.keys()):
            return f"{missing[0]} is missing"
        if extra := sorted(there.keys() - recorded.keys()):
            return f"{extra[0]} does not belong there"
        for name, file in recorded.items():
            if there[name] != file.size:
                return f"{name} has {there[name]} bytes instead of {file.size}"
            if self._files.checksum(f"{folder}/{name}") != file.checksum:
                return f"the bytes of {name} are not those that were written"
        return None

    def epochs(self) -> list[int]:
        """The numbers of the epochs that readers see, in their order."""
        return sorted(epoch for name in self._files.names("") if (epoch := epoch_of(name)))

    def receipt(self, epoch: int) -> Receipt | None:
        """The record of one published epoch; None when there is no such folder."""
        folder = folder_name(epoch)
        sealed, is_taken = self._record_of(folder)
        if sealed is None and is_taken:
            raise DamageError(
                f"{folder} has no record of what it is",
                where=f"{self.url}/{folder}",
                hint="Readers take it for an epoch. Bring its _seamark.json back, or move it away.",
            )
        return sealed.record.receipt if sealed else None

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        """Move all later epochs to where no reader looks, and return their numbers.

        :class:`LineageError` when the newest one is not of the timeline ``of``, or when others have
        come to the places of those that were there: another process has gone on.
        """
        taken = [number for number in self.epochs() if number > epoch]
        # in the order in which others would show new ones: the newest is looked at last
        seen = {number: self._seen(folder_name(number)) for number in taken}
        if shown := [receipt for receipt in seen.values() if receipt is not None]:
            require_given_up(shown[-1], of, self.url)
        for number in reversed(taken):  # newest first: what is left has no hole
            self._put_aside(folder_name(number), seen[number])
        return taken

    def _seen(self, folder: str) -> Receipt | None:
        """The record of an epoch; None when there is none that can be read."""
        try:
            sealed = self._record(folder)
        except DamageError:
            return None
        return sealed.record.receipt if sealed else None

    def _put_aside(self, folder: str, seen: Receipt | None) -> None:
        """Move a folder away that may be gone; what has come to its place since stays."""
        now = self._seen(folder)
        if now is not None and now != seen:
            raise gone_on(now, f"{self.url}/{folder}")
        if now is None and not self._files.is_folder(folder):
            return
        timeline = seen.timeline if seen else "unknown"
        aside = f"{_ASIDE}/{check_token(timeline, 'a timeline')}"
        self._files.make_folder(aside)
        taken = set(self._files.names(aside))
        names = (
            folder if count == 1 else f"{folder}-{count}" for count in range(1, len(taken) + 2)
        )
        place = next(name for name in names if name not in taken)
        if not self._files.rename_if_free(folder, f"{aside}/{place}"):
            raise StoreUnavailableError(
                f"{self.url}/{folder} could not be taken back",
                hint="Is somebody else taking epochs back? Start again.",
            )
        now = self._seen(f"{aside}/{place}")
        if now is not None and now != seen:  # it came between the look and the rename
            self._files.rename_if_free(f"{aside}/{place}", folder)
            raise gone_on(now, f"{self.url}/{folder}")

    def _record_of(self, target: str) -> tuple[SealedOnHdfs | None, bool]:
        """The record of a folder that readers see, and whether there is such a folder.

        A folder without a record is looked at again: others may just have published it or taken
        it back.
        """
        for _ in range(_TRIES):
            sealed = self._record(target)
            if sealed is not None or not self._files.is_folder(target):
                return sealed, sealed is not None
        return None, True

    def _record(self, folder: str) -> SealedOnHdfs | None:
        """The record of an epoch's folder, or None when there is none."""
        try:
            data = self._files.read(f"{folder}/{RECORD}")
        except FileNotFoundError:
            return None
        try:
            record = msgspec.json.decode(unseal(data), type=HdfsRecord)
        except (DamageError, *UNREADABLE) as error:
            raise DamageError(
                f"the record {self.url}/{folder}/{RECORD} is damaged: {error}",
                hint="The rows next to it may be intact. Restore the folder from a copy, or take "
                "the epoch back and run it again.",
            ) from error
        return SealedOnHdfs(record, hashlib.sha256(data).hexdigest())


def _staged(attempt: str, epoch: int) -> str:
    return f"{_STAGING}/{check_token(attempt, 'an attempt')}/{folder_name(epoch)}"


def _is_litter(name: str, size: int, empty_files: bool) -> bool:
    """Whether Hadoop has left it next to the rows, or it holds none."""
    *folders, file = name.split("/")
    hidden = any(part.startswith((".", "_")) and "=" not in part for part in folders)
    return hidden or file.startswith((".", "_")) or (empty_files and size == 0)
