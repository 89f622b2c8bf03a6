"""What an attempt has written for an epoch, kept until its commit or its abort.

::

    {table}/_seamark/{output}/staging/{attempt}/
        journal-….json     names of data files, before they are written
        files.avro         the data files of the epoch
        keys.parquet       the keys of rows that they replace
        prepared           that there is nothing to list
        epoch.json         what all this is; withdrawn.json when nobody may commit it any more
    {table}/_seamark/{output}/epochs/000000000042.json    an epoch that is shown

Data files are at their final places from the start: no reader sees a file that no snapshot names.
Whatever removes orphan files skips names that begin with ``_``, so a journal is never lost. Anybody
may have written one, so only files whose names tell that the attempt wrote them are removed.

Tests: ``tests/sinks/test_iceberg_staging.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark.errors import DamageError
from seamark.limits import LARGEST_FILE
from seamark.sinks.contract import Receipt
from seamark.sinks.folders import check_token, is_token
from seamark.sinks.iceberg.data_names import data_folders, is_of_attempt
from seamark.sinks.iceberg.files import Folder, remove_files

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from seamark.sinks.iceberg.marks import Mark, Output

log = logger_named("seamark.sinks")

LIST: Final = "files.avro"
KEYS: Final = "keys.parquet"
_PREPARED: Final = "prepared"
_EPOCH: Final = "epoch.json"
_WITHDRAWN: Final = "withdrawn.json"
_JOURNAL: Final = "journal-"
_RECORDS_KEPT: Final = 1000
_LONGEST_SHOWN: Final = 300


class Staging:
    """The folder of one output beside its table."""

    def __init__(
        self, io: FileIO, location: str, properties: Mapping[str, str], output: Output
    ) -> None:
        self.io = io
        self.output = output
        self._data = data_folders(location, properties)
        self._folder = Folder(io, location, f"_seamark/{output.name}")

    @classmethod
    def of(cls, table: Table, output: Output) -> Staging:
        return cls(table.io, table.location(), table.metadata.properties, output)

    # an attempt

    def begin(self, receipt: Receipt) -> None:
        """Note that an attempt stages an epoch, and clear away what it left earlier."""
        self.remove(receipt.attempt)
        self._write(receipt.attempt, _EPOCH, msgspec.json.encode(receipt))

    def note(self, attempt: str, name: str, paths: Sequence[str]) -> None:
        """Write down which files are about to be written."""
        self._write(attempt, f"{_JOURNAL}{name}.json", json.dumps(list(paths)).encode())

    def write(self, attempt: str, name: str, data: bytes) -> str:
        """Keep a file of the attempt; its SHA-256."""
        self._write(attempt, name, data)
        return hashlib.sha256(data).hexdigest()

    def read(self, attempt: str, name: str, digest: str) -> bytes:
        """A file of the attempt. :class:`DamageError` when it is gone or another."""
        data = self._folder.read(f"{_at(attempt)}/{name}", LARGEST_FILE)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise DamageError(
                f"{name} of a decided epoch is {'gone' if data is None else 'damaged'}",
                where=f"{self._folder.location}/{_at(attempt)}",
                hint="Who has removed it? Roll the pipeline back to the epoch before.",
            )
        return data

    def digest(self, attempt: str, name: str) -> str:
        """The SHA-256 of a file of the attempt that was written by others."""
        data = self._folder.read(f"{_at(attempt)}/{name}", LARGEST_FILE)
        return hashlib.sha256(data or b"").hexdigest()

    def location(self, attempt: str, name: str) -> str:
        """The full name of a file of the attempt."""
        return f"{self._folder.location}/{_at(attempt)}/{name}"

    def note_prepared(self, attempt: str) -> None:
        """Note that an attempt has been prepared that has neither files nor keys."""
        self._write(attempt, _PREPARED, b"")

    def is_prepared(self, attempt: str) -> bool:
        """Whether an attempt may have been decided."""
        return not {LIST, KEYS, _PREPARED}.isdisjoint(self._folder.names(_at(attempt)))

    def has(self, attempt: str, name: str) -> bool:
        """Whether a file of the attempt is there."""
        return name in self._folder.names(_at(attempt))

    def withdraw(self, attempt: str) -> None:
        """Have nobody begin to commit an attempt from now on."""
        self._rename(f"{_at(attempt)}/{_EPOCH}", f"{_at(attempt)}/{_WITHDRAWN}")

    def reinstate(self, attempt: str) -> None:
        """Put the record of an attempt back that turned out to be shown."""
        self._rename(f"{_at(attempt)}/{_WITHDRAWN}", f"{_at(attempt)}/{_EPOCH}")

    def _rename(self, old: str, new: str) -> None:
        data = self._folder.read(old)
        if data is not None:
            self._folder.write(new, data)
            self._folder.remove(old)

    def attempts(self) -> list[str]:
        """Tokens that something is staged under."""
        return [name for name in self._folder.names("staging") if is_token(name)]

    def remove(self, attempt: str, keep: Collection[str] | None = ()) -> None:
        """Remove an attempt and the data files that it wrote, but for those to keep.

        None keeps all of them. Data files go before their names, so that a crash loses none.
        """
        names = self._folder.names(_at(attempt))
        if not names:
            return
        journals = [name for name in names if name.startswith(_JOURNAL)]
        if keep is not None:
            for journal in journals:
                paths = self._own_paths(attempt, journal)
                remove_files(self.io, [path for path in paths if path not in keep])
        rest = [name for name in names if name not in (*journals, LIST, _EPOCH)]
        # the list tells what to keep, and the epoch whose it is
        for name in (*rest, *journals, LIST, _EPOCH):
            self._folder.remove(f"{_at(attempt)}/{name}")
        self._folder.remove_folder(_at(attempt))

    def _own_paths(self, attempt: str, journal: str) -> list[str]:
        """The data files in a journal that the attempt can have written."""
        name = f"{_at(attempt)}/{journal}"
        data = self._folder.read(name)
        if data is None:
            return []
        try:
            paths = msgspec.json.decode(data, type=list[str])
        except UNREADABLE:
            self._leave_alone(name, "cannot be read: data files that it names are left alone")
            return []
        own = [p for p in paths if is_of_attempt(p, self._data, self.output.name, attempt)]
        if foreign := sorted(set(paths).difference(own)):
            such = redacted(repr(foreign[0][:_LONGEST_SHOWN]))
            which = f"{len(foreign)} files that its attempt cannot have written, such as {such}"
            self._leave_alone(name, f"names {which}: they are left alone")
        return own

    def _leave_alone(self, name: str, what: str) -> None:
        log.warning("%s/%s %s", redacted(self._folder.location), name, what)

    def _write(self, attempt: str, name: str, data: bytes) -> None:
        self._folder.write(f"{_at(attempt)}/{name}", data)

    # epochs that are shown

    def settle(self, mark: Mark, table: Table, shown: Collection[str] | None = None) -> None:
        """Keep the record of the epoch that a table shows last, and clear away its attempt.

        ``shown`` are its data files, if they are known. Must be done before the mark changes:
        afterwards whatever is staged counts as not shown.
        """
        names = self._folder.names(_at(mark.attempt))
        if not names:
            return
        record = self._folder.read(f"{_at(mark.attempt)}/{_EPOCH}")
        if record is not None:
            self._folder.write(_record(mark.epoch), record)
            self._folder.remove(_record(mark.epoch - _RECORDS_KEPT))
        self.remove(mark.attempt, self._shown(mark, names, table) if shown is None else shown)

    def _shown(self, mark: Mark, names: Collection[str], table: Table) -> Collection[str] | None:
        """Data files that the commit of a mark made part of the table; None when not known."""
        if table.metadata.snapshot_by_id(mark.snapshot) is None:
            return None
        if not any(name.startswith(_JOURNAL) for name in names):
            return ()
        from seamark.sinks.iceberg.data_files import added_by

        return added_by(table, mark.snapshot)

    def record(self, epoch: int) -> Receipt | None:
        """The record of an epoch that was shown; None when there is none any more."""
        return self._receipt(_record(epoch))

    def staged(self, attempt: str) -> Receipt | None:
        """What an attempt stages; None when it does not, or may not be committed any more."""
        return self._receipt(f"{_at(attempt)}/{_EPOCH}")

    def _receipt(self, name: str) -> Receipt | None:
        data = self._folder.read(name)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Receipt)
        except UNREADABLE:
            self._leave_alone(name, "cannot be read and is left alone")
            return None

    def forget(self, epochs: Collection[int]) -> None:
        """Remove the records of epochs that were taken back."""
        for epoch in epochs:
            self._folder.remove(_record(epoch))


def _at(attempt: str) -> str:
    return f"staging/{check_token(attempt, 'an attempt')}"


def _record(epoch: int) -> str:
    return f"epochs/{epoch:012d}.json"
