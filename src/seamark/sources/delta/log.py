"""The versions of a Delta table, one by one: the files that each has added. Without Spark.

Tests: ``tests/sources/test_delta.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from seamark._common.json_documents import UNREADABLE
from seamark._redaction import redacted
from seamark.errors import (
    DamageError,
    PositionUnavailable,
    RefusedError,
    SourceSilentError,
    SourceUnavailableError,
)

_LOG: Final = "_delta_log"


@dataclass(frozen=True)
class AddedFile:
    """A file of rows that a version has added."""

    path: str
    partition_values: Mapping[str, str | None]
    rows: int | None = None
    """How many it has by its statistics, which may be wrong or left out."""
    size: int | None = None


class DeltaLog:
    """The log of one table, as it is at one moment. All errors of ``deltalake`` become ours."""

    def __init__(self, path: str, storage_options: Mapping[str, str]) -> None:
        try:
            import deltalake
        except ImportError:
            raise RefusedError(
                "a Delta table is read by deltalake, which is not installed",
                hint="pip install 'seamark[delta]'.",
            ) from None
        self.path = path
        self._options = dict(storage_options) or None
        errors: Any = deltalake.exceptions
        try:
            self._table = deltalake.DeltaTable(path, storage_options=self._options)
        except (errors.DeltaError, OSError) as error:
            is_away = _is_remote(path) and not isinstance(error, errors.TableNotFoundError)
            raise (SourceSilentError if is_away else SourceUnavailableError)(
                "there is no Delta table here, or it cannot be read",
                where=redacted(f"{path}: {error}"),
            ) from error
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode") or "none"
        if mapping != "none":
            raise RefusedError(
                f"the Delta table has column mapping (by {mapping}): the columns of its files have "
                "other names",
                where=redacted(path),
                hint="Read it with Delta's own connector, or have an engine that knows it copy the "
                "rows to a table without.",
            )

    @property
    def place(self) -> str:
        """Where the table is, to be named in errors."""
        return redacted(self.path)

    @property
    def newest(self) -> int:
        """The newest version."""
        return int(self._table.version())

    @property
    def table_id(self) -> str:
        """The id of the table, which another one at the same place has not."""
        return str(self._table.metadata().id)

    @property
    def schema(self) -> dict[str, Any]:
        """Its columns, as Spark writes a schema in JSON."""
        schema: dict[str, Any] = json.loads(self._table.schema().to_json())
        return schema

    @cached_property
    def files(self) -> Any:
        """The files of the table, as a file system of pyarrow."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler.from_table(self._table._table, self._options))

    @property
    def oldest(self) -> int | None:
        """The oldest version whose entry is still there; None without any."""
        from pyarrow.fs import FileSelector

        with self._answers(_LOG):
            names = [each.base_name for each in self.files.get_file_info(FileSelector(_LOG))]
        entries = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return min((int(name) for name in entries if name.isdecimal()), default=None)

    def entry(self, version: int) -> LogEntry | None:
        """What a version says about itself; None when its entry is not there."""
        path = f"{_LOG}/{version:020}.json"
        try:
            with self._answers(path), self.files.open_input_file(path) as file:
                return LogEntry(version, path, bytes(file.read()))
        except FileNotFoundError:
            return None

    def entry_to_read(self, version: int) -> LogEntry:
        """The entry of a version that was not read yet; :class:`PositionUnavailable` without."""
        entry = self.entry(version)
        if entry is None:
            raise self.gone(
                version,
                f"the Delta table no longer has its entry for version {version}",
                "Its log was cleaned up (delta.logRetentionDuration) before it was read. Restore "
                "the entry, or start over with a new store and option starting_version.",
            )
        return entry

    def gone(self, version: int, what: str, hint: str) -> PositionUnavailable:
        """The error for a version that is wanted, with those that the log has."""
        oldest, newest = self.oldest, self.newest
        return PositionUnavailable(
            what,
            where=f"{self.place}: version {version} is wanted, the oldest that the log "
            f"has is {'none' if oldest is None else oldest}, the newest is {newest}",
            hint=hint,
            requested=str(version).encode(),
            earliest=None if oldest is None else str(oldest).encode(),
        )

    def open(self, path: str) -> Any:
        """A file of the table; FileNotFoundError without it."""
        with self._answers(path):
            return self.files.open_input_file(path)

    def first_missing(self, paths: Sequence[str]) -> int | None:
        """The number of the first file that is not there; None when all are."""
        from pyarrow.fs import FileType

        with self._answers(_LOG):
            found = self.files.get_file_info(list(paths)) if paths else []
        missing = (n for n, each in enumerate(found) if each.type is FileType.NotFound)
        return next(missing, None)

    @contextmanager
    def _answers(self, path: str) -> Iterator[None]:
        """Turn the failure of a file system or object store into our error."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unanswered(self.path, path, error) from error


def _is_remote(path: str) -> bool:
    """Whether a server has the table, which may be away. A disk answers at once."""
    return "://" in path and not path.startswith("file:")


def unanswered(table: str, path: str, error: OSError) -> SourceUnavailableError:
    """The error for a file of a table that cannot be read just now."""
    return (SourceSilentError if _is_remote(table) else SourceUnavailableError)(
        "a file of the Delta table cannot be read", where=redacted(f"{table}: {path}: {error}")
    )


@dataclass(frozen=True)
class LogEntry:
    """One version's entry in the log."""

    version: int
    path: str
    content: bytes

    @cached_property
    def digest(self) -> str:
        """Tells it from the entry of the same number in another history of the table."""
        return hashlib.sha256(self.content).hexdigest()[:16]

    def added(self, where: str) -> list[AddedFile]:
        """The files of new rows. :class:`RefusedError` when it has changed or removed rows."""
        return list(_added(self._actions(), self.version, where))

    def named(self, where: str) -> list[AddedFile]:
        """All files that it adds to the table, whatever it does with others."""
        added = (action.get("add") for action in self._actions())
        return [_added_file(each, self.version, where) for each in added if isinstance(each, dict)]

    def _actions(self) -> Iterator[dict[str, Any]]:
        # only this ends a line: a value may hold what str.splitlines() takes for an end
        lines = self.content.split(b"\n")
        return (_action(line, self.path) for line in lines if line.strip())


def _action(line: bytes, path: str) -> dict[str, Any]:
    try:
        action = json.loads(line)
    except UNREADABLE as error:
        raise DamageError("an entry of a Delta log cannot be read", where=path) from error
    return action if isinstance(action, dict) else {}


def _added(actions: Iterator[dict[str, Any]], version: int, where: str) -> Iterator[AddedFile]:
    for action in actions:
        removed, added = action.get("remove"), action.get("add")
        if isinstance(removed, dict) and removed.get("dataChange", True):
            raise RefusedError(
                f"version {version} of the Delta table has changed or removed rows",
                where=where,
                hint="As a source a table may only grow. Compaction is no change.",
            )
        if isinstance(added, dict) and added.get("dataChange", True):
            if added.get("deletionVector"):
                raise RefusedError(
                    f"version {version} of the Delta table marks rows as deleted", where=where
                )
            yield _added_file(added, version, where)


def _added_file(added: Mapping[str, Any], version: int, where: str) -> AddedFile:
    path, values = added.get("path"), added.get("partitionValues") or {}
    is_mapping = isinstance(values, dict)
    if not isinstance(path, str) or not is_mapping or not _are_texts(values.values()):
        raise DamageError(
            f"version {version} of the Delta table adds a file whose path or partition cannot be "
            "read",
            where=where,
        )
    size = added.get("size")
    return AddedFile(
        unquote(path), values, _row_count(added), size if isinstance(size, int) else None
    )


def _are_texts(values: Iterable[object]) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _row_count(added: Mapping[str, Any]) -> int | None:
    """As the statistics of a file have it; writers may leave them out."""
    try:
        count = json.loads(added["stats"])["numRecords"]
    except (KeyError, TypeError, *UNREADABLE):
        return None
    return count if isinstance(count, int) and count >= 0 else None
