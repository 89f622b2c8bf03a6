"""The snapshots of an Iceberg table, one by one: the files that each has added. Without Spark.

Tests: ``tests/sources/test_iceberg.py``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from seamark._redaction import redacted
from seamark.errors import (
    DamageError,
    PositionUnavailable,
    RefusedError,
    SeamarkError,
    SourceSilentError,
    SourceUnavailableError,
)
from seamark.sources.iceberg.position import IcebergPosition
from seamark.table_formats.iceberg_lineage import earlier_metadata, lineage
from seamark.table_formats.iceberg_settings import guard, refuse_overruling

_OF_DAMAGED_FILES: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    EOFError,
    ArithmeticError,
    SystemError,
    RecursionError,
    zlib.error,
)
"""What pyiceberg and pyarrow raise for bytes that make no sense. Errors of a service are others."""


class IcebergHistory:
    """One table, as it is at one moment. All errors of ``pyiceberg`` become ours."""

    def __init__(self, catalog: str, properties: Mapping[str, str], table: str) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise RefusedError(
                "an Iceberg table is read by pyiceberg, which is not installed",
                hint="pip install 'seamark[iceberg]'.",
            ) from None
        self.name = f"{catalog}:{table}"
        try:
            opened = load_catalog(catalog, **properties)
            guard(opened, self.name)
            self._table: Any = opened.load_table(table)
        except SeamarkError:
            raise
        except Exception as error:
            raise (SourceSilentError if _is_silence(error) else SourceUnavailableError)(
                "there is no Iceberg table of this name, or its catalog cannot be reached",
                where=redacted(f"{self.name}: {error}"),
            ) from error
        refuse_overruling(self._table.metadata.properties, opened, self.name)

    @property
    def table_id(self) -> str:
        """The UUID of the table, which another one of the same name has not."""
        return str(self._table.metadata.table_uuid)

    @property
    def arrow_schema(self) -> Any:
        """Its columns, as pyarrow has them."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def snapshots(self) -> list[Any]:
        """Those that lead to the current one, oldest first."""
        return [*lineage(self._table.metadata)][::-1]

    def from_the_first(self, snapshots: list[Any]) -> list[Any]:
        """All of them, if the first one of the table is among them."""
        if snapshots and self._has_older_rows(snapshots[0]):
            raise self._unavailable(
                "the first one",
                snapshots,
                "the Iceberg table no longer has its first snapshots",
                "They have expired. A new pipeline can begin later: option starting_snapshot.",
            )
        return snapshots

    def from_snapshot(self, snapshots: list[Any], snapshot_id: int) -> list[Any]:
        """Those from a snapshot on, itself included."""
        ids = [snapshot.snapshot_id for snapshot in snapshots]
        if snapshot_id not in ids:
            raise self._unavailable(
                str(snapshot_id),
                snapshots,
                f"the Iceberg table no longer has snapshot {snapshot_id}",
                "It has expired, or the table was rolled back, and nothing proves that the oldest "
                "one that is left comes right after what was read. Start over with a new store "
                "and option starting_snapshot.",
            )
        return snapshots[ids.index(snapshot_id) :]

    def after(self, snapshots: list[Any], position: IcebergPosition) -> list[Any]:
        """Those that are left to read after a position.

        A snapshot that was read to its end may have expired, if the oldest one that is left is
        proven to come right after it: then no rows lie between the two.
        """
        if position.table_id != self.table_id:
            raise PositionUnavailable(
                "this is another Iceberg table than the one that was read",
                where=f"{self.name}: its id is {self.table_id}, and was {position.table_id}",
                hint="Give the new table a pipeline with a new store.",
                requested=str(position.snapshot).encode(),
            )
        if position.is_complete and snapshots and self._follows(snapshots[0], position):
            return snapshots
        left = self.from_snapshot(snapshots, position.snapshot)
        return left[1:] if position.is_complete else left

    def _follows(self, snapshot: Any, position: IcebergPosition) -> bool:
        """Whether a snapshot is proven to come right after the one that a position is the end of.

        pyiceberg takes the parent out when that expires. Sequence numbers are never used twice, but
        a table that was rolled back in between goes on with the next one, too.
        """
        if snapshot.snapshot_id == position.snapshot:
            return False
        if snapshot.parent_snapshot_id is not None:
            return bool(snapshot.parent_snapshot_id == position.snapshot)
        before = position.sequence or 0
        if before <= 0 or snapshot.sequence_number != before + 1:
            return False
        with self._files_are_read():
            return self._has_files_of(snapshot, position.snapshot) or (
                self._former_parent(snapshot.snapshot_id) == position.snapshot
            )

    def _has_files_of(self, snapshot: Any, earlier: int) -> bool:
        """Whether a snapshot has manifests or files that an earlier one has added."""
        manifests = snapshot.manifests(self._table.io)
        if any(manifest.added_snapshot_id == earlier for manifest in manifests):
            return True
        return any(
            entry.snapshot_id == earlier
            for manifest in manifests
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(self._table.io)
        )

    def _former_parent(self, snapshot: int) -> int | None:
        """What a snapshot's parent was before that expired, by the metadata files of that time."""
        for _, metadata in earlier_metadata(self._table):
            found = metadata.snapshot_by_id(snapshot)
            if found is None or found.parent_snapshot_id is not None:
                return None if found is None else found.parent_snapshot_id
        return None

    def _unavailable(
        self, wanted: str, snapshots: list[Any], what: str, hint: str
    ) -> PositionUnavailable:
        ids = [str(snapshot.snapshot_id) for snapshot in snapshots] or ["none"]
        return PositionUnavailable(
            what,
            where=f"{self.name}: snapshot {wanted} is wanted, the oldest that is left is {ids[0]}, "
            f"the newest is {ids[-1]}",
            hint=hint,
            requested=wanted.encode(),
            earliest=ids[0].encode() if snapshots else None,
        )

    def _has_older_rows(self, snapshot: Any) -> bool:
        """Whether rows of a snapshot were added by an earlier one, which has expired."""
        from pyiceberg.manifest import ManifestEntryStatus

        if snapshot.parent_snapshot_id is not None:
            return True
        with self._files_are_read():
            return any(
                manifest.added_snapshot_id != snapshot.snapshot_id
                or any(
                    entry.status is ManifestEntryStatus.EXISTING
                    for entry in manifest.fetch_manifest_entry(self._table.io)
                )
                for manifest in snapshot.manifests(self._table.io)
            )

    def added_by(self, snapshot: Any) -> Iterator[Any]:
        """The data files that a snapshot has added, in the order of its manifests.

        :class:`RefusedError` when it has changed or removed rows.
        """
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
        from pyiceberg.table.snapshots import Operation

        operation = snapshot.summary.operation if snapshot.summary is not None else None
        if operation is Operation.REPLACE:
            return  # the same rows in other files
        if operation is not Operation.APPEND:
            raise RefusedError(
                f"snapshot {snapshot.snapshot_id} of the Iceberg table has changed or removed rows",
                where=self.name,
                hint="As a source a table may only grow. Compaction is no change.",
            )
        with self._files_are_read():
            for manifest in snapshot.manifests(self._table.io):
                is_own = manifest.added_snapshot_id == snapshot.snapshot_id
                if not is_own or manifest.content is not ManifestContent.DATA:
                    continue
                for entry in manifest.fetch_manifest_entry(self._table.io):
                    if entry.status is ManifestEntryStatus.ADDED:
                        yield entry.data_file

    def batches(self, data_file: Any) -> Iterator[Any]:
        """The rows of a file, with the columns that the table has now."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        with self._files_are_read():
            yield from scan.to_record_batches([FileScanTask(data_file)])

    @contextmanager
    def _files_are_read(self) -> Iterator[None]:
        """A file that is gone is a loss; one that cannot be read now is an outage, or damaged."""
        try:
            yield
        except SeamarkError:
            raise
        except FileNotFoundError as error:
            raise PositionUnavailable(
                "a file that a snapshot of the Iceberg table has added is gone",
                where=redacted(f"{self.name}: {error}"),
                hint="It was removed before it was read. Restore it, or start over with a new "
                "store.",
            ) from error
        except OSError as error:
            raise SourceSilentError(
                "a file of the Iceberg table cannot be read",
                where=redacted(f"{self.name}: {error}"),
            ) from error
        except _OF_DAMAGED_FILES as error:
            raise DamageError(
                "a file of the Iceberg table is damaged",
                where=redacted(f"{self.name}: {type(error).__name__}: {error}"),
                hint="Nothing of it was read. Restore the file, or have the table's owner repair "
                "it.",
            ) from error


def _is_silence(error: Exception) -> bool:
    """Whether a catalog, or the store of its tables, gave no answer, or that it is overloaded."""
    from pyiceberg.exceptions import (
        ServerError,
        ServiceUnavailableError,
        TooManyRequestsError,
    )

    if isinstance(error, ServerError | ServiceUnavailableError | TooManyRequestsError):
        return True
    # a database that cannot be reached; SQLAlchemy is there only with a catalog in a database
    is_database = type(error).__name__ in ("OperationalError", "InterfaceError")
    is_io = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
    return is_database or is_io
