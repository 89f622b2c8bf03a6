"""Where a Delta table is: its log, its rows, and what Seamark keeps beside them.

::

    {table}/_delta_log/                          the log, which decides
    {table}/seamark/{sink}/{attempt}/*.parquet   rows, at the place where they stay
    {table}/_seamark/{sink}/{attempt}/           which epoch it is; changes to be merged
    {table}/_seamark/vacuums/                    those under way

Only entries of the log make rows visible. Vacuum never looks into folders that begin with ``_``.

Tests: ``tests/sinks/test_delta_log.py``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from seamark._common.files import require_no_link
from seamark._redaction import Redactor
from seamark.blobs.addresses import open_blobs
from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import InvalidInputError, OutcomeUnknownError, RefusedError
from seamark.errors import StoreUnavailableError as Unavailable
from seamark.table_formats.delta_addresses import is_bucket, unknown_address

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

DATA: Final = "seamark"
CONTROL: Final = "_seamark"
LOG: Final = "_delta_log"
VACUUMS: Final = "vacuums"
LONGEST_VACUUM_SECONDS: Final = 3600
"""For so long the note of a vacuum that died stands in the way of a rollback."""
_CLEAN_UP_EVERY: Final = 100
_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m")


class _SeenEntry(NamedTuple):
    """The entry of a version, as it was when it was read."""

    version: int
    content: Hashable
    """Changes when it is written again."""


class TablePlace:
    """One Delta table, by its path or URL."""

    def __init__(
        self, table: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> None:
        text = os.fspath(table)
        where = open_blobs(text, options)
        self.is_local = isinstance(where, FilesystemBlobs)
        if not self.is_local and not is_bucket(text):
            raise unknown_address(where.url)
        if self.is_local and "%" in where.url:
            raise InvalidInputError(
                "deltalake takes a percent sign in a path for a part of a URL",
                where=where.url,
                hint="Give the table a path without one.",
            )
        self.url = where.url.rstrip("/")
        """Free of secrets."""
        self._address = self.url if self.is_local else text.rstrip("/")
        self._options = dict(options or {})
        self._redact = Redactor(self._options)
        self._table: DeltaTable | None = None
        self._seen: _SeenEntry | None = None
        self._require_no_links()
        self.log = self._blobs(LOG)
        self.control = self._blobs(CONTROL)
        self.data = self._blobs(DATA)

    def _require_no_links(self) -> None:
        """Refuse a link in the place of a folder of ours: as a root of files it is followed."""
        if self.is_local:
            for folder in (LOG, CONTROL, DATA):
                require_no_link(f"{self._address}/{folder}")

    def _blobs(self, folder: str) -> Blobs:
        return open_blobs(f"{self._address}/{folder}", self._options or None)

    @property
    def storage_options(self) -> dict[str, str]:
        """As ``deltalake`` takes them: one level, and text."""
        flat: dict[str, Any] = {}
        for name, value in self._options.items():
            flat |= value if isinstance(value, Mapping) else {name: value}
        return {name: _option_text(value) for name, value in flat.items()}

    def find(self) -> DeltaTable | None:
        """The table as it is now, or None when there is none."""
        from deltalake.exceptions import TableNotFoundError

        self._require_no_links()  # others may write there at any time
        with self.translated("reading"):
            try:
                return self._newest()
            except TableNotFoundError:
                return None

    def look(self) -> DeltaTable:
        """The table as it is now; :class:`RefusedError` when there is none."""
        table = self.find()
        if table is None:
            raise RefusedError(
                "there is no Delta table any more", where=self.url, hint="Who has removed it?"
            )
        return table

    def _newest(self) -> DeltaTable:
        from deltalake.exceptions import DeltaError

        if self._table is not None:
            try:
                self._table.update_incremental()
            except (DeltaError, OSError):
                self._table = None  # the entries in between may have been cleaned up
        if self._table is None or not self._is_same_log(self._table.version()):
            self._table = self._open()
            self._seen = self._entry(self._table.version())
        return self._table

    def _is_same_log(self, version: int) -> bool:
        """Whether what is known of the table and the entries up to a version are of one log.

        A table that was made anew may have as many versions, and entries that would fit. So the
        entry that was seen last has to be the very same, now that later ones have been read.
        """
        seen = self._seen
        if seen is None or self._entry(seen.version) != seen:
            return False
        if version != seen.version:
            self._seen = self._entry(version)
        return self._seen is not None

    def _entry(self, version: int) -> _SeenEntry | None:
        entry = self.log.stat(entry_name(version))
        return None if entry is None else _SeenEntry(version, entry.version)

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self._address, storage_options=self.storage_options or None)

    def forget(self) -> None:
        """Have the next look read everything again."""
        self._table = None

    def create(self, schema: Mapping[str, Any], partition_by: Sequence[str]) -> None:
        """Make the table, unless another process has just done so."""
        from deltalake import CommitProperties, DeltaTable, Schema
        from deltalake.exceptions import CommitFailedError

        if self.is_local:
            os.makedirs(self._address, exist_ok=True)
        with self.translated("creating"):
            try:
                DeltaTable.create(
                    self._address,
                    Schema.from_json(json.dumps(schema)),
                    mode="ignore",
                    partition_by=[*partition_by],
                    storage_options=self.storage_options or None,
                    # another try would make the next version a new table over the one of another
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError:
                if self.log.stat(entry_name(0)) is None:
                    raise
        self.make_durable(0)

    def make_durable(self, version: int, files: Sequence[str] = ()) -> None:
        """Have an entry of the log survive a power cut, and files; ``deltalake`` syncs none."""
        if not self.is_local:
            return
        table = open_blobs(self._address)
        for path in files:
            if table.stat(path) is not None:  # or it has been vacuumed since
                table.make_durable(path)
        if self.log.stat(entry_name(version)) is not None:
            self.log.make_durable(entry_name(version))

    def files_gone_since(self, version: int, table: DeltaTable) -> list[str]:
        """Files that a version names, the newest does not, and nobody has any more.

        :class:`StoreUnavailableError` while a vacuum removes some.
        """
        from deltalake import DeltaTable

        if self.vacuums(within=LONGEST_VACUUM_SECONDS):
            raise Unavailable(
                "files of the table are being vacuumed, perhaps those of the earlier version",
                where=self.url,
                hint="Try again when the vacuum has ended. One that died counts for an hour.",
            )
        with self.translated("reading an earlier version of"):
            options = self.storage_options or None
            then = DeltaTable(self._address, version=version, storage_options=options)
            names = _file_names(then) - _file_names(table)
        below = open_blobs(self._address, self._options or None)
        return sorted(
            name
            for name in names
            # a clone names the files of another table by their addresses
            if "://" not in name and below.stat(unquote(name)) is None and below.stat(name) is None
        )

    def vacuums(self, *, within: float) -> list[str]:
        """Notes of vacuums that have begun within so many seconds."""
        notes = self.control.entries(f"{VACUUMS}/")
        now = self.control.clock() if notes else 0.0
        return [note.key for note in notes if note.modified > now - within]

    def files_modified_within(self, seconds: float, paths: Iterable[str]) -> dict[str, float]:
        """Which of these files are as young as that, and when they were written."""
        below = open_blobs(self._address, self._options or None)
        now = self.control.clock()  # it may write a probe, which is not to be among the rows
        times = {path: entry.modified for path in paths if (entry := below.stat(path)) is not None}
        return {path: at for path, at in times.items() if at > now - seconds}

    def delete_files(self, paths: Sequence[str]) -> None:
        """Remove files by their paths below the table."""
        open_blobs(self._address, self._options or None).delete(paths)

    @contextmanager
    def translated(self, doing: str, *, write: bool = False) -> Iterator[None]:
        """Turn an error of ``deltalake`` into one of ours, without a secret in it."""
        from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

        try:
            yield
        except TableNotFoundError:
            raise
        except DeltaProtocolError as error:
            raise RefusedError(
                f"{doing} the Delta table is refused: {self.brief(error)}", where=self.url
            ) from None
        except (DeltaError, OSError) as error:
            if isinstance(error, Unavailable):
                raise
            if "Unsupported table features" in str(error):
                raise RefusedError(
                    f"this deltalake cannot write to the table: {self.brief(error)}",
                    where=self.url,
                    hint="Update it, or write to a table without these features.",
                ) from None
            raise (OutcomeUnknownError if write else Unavailable)(
                f"{doing} the Delta table failed: {self.brief(error)}", where=self.url
            ) from None

    def brief(self, error: Exception) -> str:
        """The error's own text on one line, without secrets."""
        text = self._redact(_COLOUR.sub("", str(error)))
        return " ".join(text.split())[:600]


def _file_names(table: DeltaTable) -> set[str]:
    return set(table.get_add_actions().column("path").to_pylist())


def _option_text(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.0f}s"
    return str(value).lower() if isinstance(value, bool) else str(value)


def hooks_after(version: int) -> PostCommitHookProperties:
    """What ``deltalake`` does after the commit that follows this version.

    It cleans up old entries after each commit, and lists the whole log for that.
    """
    from deltalake import PostCommitHookProperties

    is_due = (version + 1) % _CLEAN_UP_EVERY == 0
    return PostCommitHookProperties(cleanup_expired_logs=None if is_due else False)


def entry_name(version: int) -> str:
    """The name of an entry of the log."""
    return f"{version:020}.json"
