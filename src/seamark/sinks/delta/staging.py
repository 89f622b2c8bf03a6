"""What one sink has staged beside a Delta table, by attempt.

A record of the epoch is there before the first row. It stays until a later epoch is shown, so that
the newest epoch is known even when the log has been cleaned up. The list of files comes with
``prepare``: without it no commit of the attempt can be on its way.

Tests: ``tests/sinks/test_delta.py``.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.blobs.conditional_writes import Taken, create_once
from seamark.blobs.contract import Blobs, KeyExists
from seamark.errors import DamageError
from seamark.limits import LARGEST_DOCUMENT, LARGEST_FILE
from seamark.sinks.contract import Receipt
from seamark.sinks.delta.actions import StagedFile
from seamark.sinks.delta.place import DATA, TablePlace
from seamark.sinks.folders import check_token, is_token

_EPOCH: Final = "epoch.json"
_FILES: Final = "files.json"
_WITHDRAWN: Final = "withdrawn.json"


class Staging:
    """The attempts of one sink."""

    def __init__(self, place: TablePlace, pipeline: str, sink: str, *, merges: bool) -> None:
        self._place = place
        # one table may have several sinks, and their attempts have the same tokens
        self._key = hashlib.sha256(f"{pipeline}\n{sink}".encode()).hexdigest()[:16]
        self._merges = merges

    @property
    def blobs(self) -> Blobs:
        """Where rows are written to: changes are never a part of the table themselves."""
        return self._place.control if self._merges else self._place.data

    def folder(self, attempt: str) -> str:
        """Where an attempt writes its rows, in :attr:`blobs`."""
        below = f"{self._key}/{check_token(attempt, 'an attempt')}"
        return f"{below}/changes" if self._merges else below

    def path_in_table(self, file: StagedFile) -> str:
        """The path of a file as the log has it."""
        return f"{DATA}/{file.path}"

    def begin(self, receipt: Receipt) -> None:
        """Note an attempt before its first row. :class:`KeyExists` when it has begun before."""
        name = self._name(receipt.attempt, _EPOCH)
        self._place.control.create(name, msgspec.json.encode(receipt))

    def begin_again(self, receipt: Receipt) -> None:
        """Clear away what an earlier try of the same attempt has left, and begin."""
        self.remove_rows(receipt.attempt)
        self.forget(receipt.attempt)
        name = self._name(receipt.attempt, _EPOCH)
        create_once(self._place.control, name, msgspec.json.encode(receipt), LARGEST_DOCUMENT)

    def _name(self, attempt: str, name: str) -> str:
        return f"{self._key}/{check_token(attempt, 'an attempt')}/{name}"

    def is_staged(self, attempt: str) -> bool:
        """Whether the record of an attempt is there."""
        return self._place.control.stat(self._name(attempt, _EPOCH)) is not None

    def is_prepared(self, attempt: str) -> bool:
        """Whether an attempt may have been decided."""
        return self._place.control.stat(self._name(attempt, _FILES)) is not None

    def attempts(self) -> list[str]:
        """Tokens that something is staged under, or that the newest epoch has."""
        entries = self._place.control.entries(f"{self._key}/")
        parts = (entry.key.removeprefix(f"{self._key}/").split("/") for entry in entries)
        return sorted({part[0] for part in parts if len(part) > 1 and is_token(part[0])})

    def staged(self, attempt: str) -> Receipt | None:
        """What an attempt has staged, or None when it may not be committed (any more)."""
        return self._receipt(attempt, _EPOCH)

    def record(self, attempt: str) -> Receipt | None:
        """The same, also of an attempt that was withdrawn."""
        return self._receipt(attempt, _EPOCH) or self._receipt(attempt, _WITHDRAWN)

    def _receipt(self, attempt: str, name: str) -> Receipt | None:
        blob = self._place.control.read(self._name(attempt, name), LARGEST_DOCUMENT)
        try:
            return None if blob is None else msgspec.json.decode(blob.data, type=Receipt)
        except UNREADABLE:
            return None

    def withdraw(self, attempt: str) -> None:
        """Have nobody begin to commit an attempt from now on."""
        self._rename(attempt, _EPOCH, _WITHDRAWN)

    def reinstate(self, attempt: str) -> None:
        """Put the record of an attempt back that turned out to be shown."""
        self._rename(attempt, _WITHDRAWN, _EPOCH)

    def _rename(self, attempt: str, old: str, new: str) -> None:
        control = self._place.control
        blob = control.read(self._name(attempt, old), LARGEST_DOCUMENT)
        if blob is None:
            return
        with suppress(KeyExists):
            control.create(self._name(attempt, new), blob.data)
        control.delete([self._name(attempt, old)])

    # files

    def sizes(self, attempt: str) -> dict[str, int]:
        """The files that are there, by path."""
        return {e.key: e.size for e in self.blobs.entries(f"{self.folder(attempt)}/")}

    def drop_strays(self, attempt: str, files: list[StagedFile]) -> None:
        """Remove files of tasks whose result did not count; the others must be there."""
        there = self.sizes(attempt)
        self._require(there, files, attempt)
        expected = {file.path for file in files}
        if strays := sorted(there.keys() - expected):
            self.blobs.delete(strays)

    def require_files(self, attempt: str, files: list[StagedFile]) -> None:
        """:class:`DamageError` when a file is gone or cut off."""
        self._require(self.sizes(attempt) if files else {}, files, attempt)

    def _require(self, there: dict[str, int], files: list[StagedFile], attempt: str) -> None:
        for file in files:
            size = there.get(file.path)
            if size != file.size:
                what = "is missing" if size is None else f"has {size} bytes, not {file.size}"
                raise DamageError(
                    f"a staged file of attempt {attempt} {what}: {file.path}",
                    where=self._place.url,
                    hint="Has somebody vacuumed the table without a time of retention? Roll the "
                    "pipeline back to the newest epoch that the table shows.",
                )

    def write_list(self, attempt: str, data: bytes) -> str:
        """Keep the list of an attempt's files, which makes it a prepared one; its digest."""
        name, control = self._name(attempt, _FILES), self._place.control
        try:
            create_once(control, name, data, LARGEST_FILE)
        except Taken:
            control.delete([name])
            create_once(control, name, data, LARGEST_FILE)
        return hashlib.sha256(data).hexdigest()

    def read_list(self, attempt: str, digest: str | None) -> bytes:
        """The list that has this digest, or any; :class:`DamageError` when it is gone or not it."""
        blob = self._place.control.read(self._name(attempt, _FILES), LARGEST_FILE)
        if blob is None or digest not in (None, hashlib.sha256(blob.data).hexdigest()):
            raise DamageError(
                f"the list of the staged files of attempt {attempt} is gone or damaged",
                where=self._place.url,
                hint="Roll the pipeline back to the newest epoch that the table shows.",
            )
        return blob.data

    # removing

    def remove_rows(self, attempt: str) -> None:
        """Remove the files that an attempt has written."""
        if names := sorted(self.sizes(attempt)):
            self.blobs.delete(names)

    def forget_shown(self, attempt: str) -> None:
        """The same for an attempt that has no changes left, without a look at what there is."""
        names = [self._name(attempt, name) for name in (_FILES, _EPOCH)]
        self._place.control.delete(names)

    def forget(self, attempt: str) -> None:
        """Remove what is kept beside the table about an attempt, its record last."""
        names = [e.key for e in self._place.control.entries(self._name(attempt, ""))]
        last = self._name(attempt, _EPOCH)
        if rest := [name for name in names if name != last]:
            self._place.control.delete(rest)
        if last in names:
            self._place.control.delete([last])
