"""One commit to a table: a snapshot with an epoch's files, and the mark of the epoch.

Every commit adds a snapshot, also for an epoch without rows. The catalog accepts it only while the
table is still at the snapshot that it was made for. So two commits for one state of the table
never both go through, and a late one finds that the table has moved on.

Tests: ``tests/sinks/test_iceberg_commits.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
)
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertTableUUID, TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_bool

from seamark.sinks.iceberg.files import sync_files
from seamark.table_formats.iceberg_lineage import earlier_metadata

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from seamark.sinks.iceberg.marks import Mark, Output

HERE: Final = object()
"""The snapshot that the table is at."""


@dataclass(frozen=True)
class Change:
    """What a snapshot changes."""

    added: Mapping[int, Sequence[DataFile]] = field(default_factory=dict)
    """New data files, by the id of the partition spec that they were written with."""
    replaced: frozenset[str] = frozenset()
    """Paths of data files that go."""
    replaces_all: bool = False
    parent: Any = HERE
    """The id of the snapshot that it builds on; None for an empty table."""

    @property
    def operation(self) -> Operation:
        """How readers of changes are to take it."""
        appends = not self.replaced and not self.replaces_all
        return Operation.APPEND if appends else Operation.OVERWRITE


class EpochTransaction(Transaction):
    """A transaction that applies its updates once.

    pyiceberg applies them whenever somebody asks for the metadata, twenty times for a commit, and
    copies all of it then, with every snapshot that the table has.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied: tuple[tuple[TableUpdate, ...], TableMetadata] = (), table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with what was staged so far. Not to be changed."""
        updates, metadata = self._applied
        if updates is not self._updates:
            metadata = update_table_metadata(self._table.metadata, self._updates)
            self._applied = self._updates, metadata
        return metadata


class EpochSnapshot(_MergeAppendFiles):
    """A snapshot that adds files of any partition spec and drops others, in one step."""

    def __init__(self, transaction: Transaction, change: Change) -> None:
        super().__init__(change.operation, transaction, transaction._table.io)
        self._change = change
        if change.parent is not HERE:
            self._parent_snapshot_id = change.parent
        # as in Java: without merging, every epoch would add a manifest for ever
        self._merge_enabled = property_as_bool(
            transaction.table_metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, True
        )
        for files in change.added.values():
            self._added_data_files.extend(files)

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """As pyiceberg's, also for files of an earlier spec whose column was dropped since."""
        metadata = self._transaction.table_metadata
        return write_manifest(
            format_version=metadata.format_version,
            spec=spec,
            schema=_schema_with(spec, metadata),
            output_file=self.new_manifest_output(),
            snapshot_id=self._snapshot_id,
            avro_compression=self._compression,
        )

    @property
    def written(self) -> list[str]:
        """Files of metadata that this snapshot consists of."""
        return [*self._written_manifests, *self._written_manifest_lists]

    def _manifests(self) -> list[ManifestFile]:
        added = [
            self._added(spec_id, files) for spec_id, files in self._change.added.items() if files
        ]
        return self._process_manifests([*added, *self._kept()])

    def _added(self, spec_id: int, files: Sequence[DataFile]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(spec_id)) as writer:
            for file in files:
                writer.add(_entry(ManifestEntryStatus.ADDED, self._snapshot_id, file))
        return writer.to_manifest_file()

    def _kept(self) -> list[ManifestFile]:
        before = self._existing_manifests()
        if not self._change.replaced and not self._change.replaces_all:
            return before
        executor = ExecutorFactory.get_or_create()
        kept = executor.map(self._without_replaced, before)
        return [manifest for manifest in kept if manifest is not None]

    def _without_replaced(self, manifest: ManifestFile) -> ManifestFile | None:
        if manifest.content != ManifestContent.DATA:
            return manifest
        entries = self.fetch_manifest_entry(manifest, discard_deleted=True)
        gone = [entry for entry in entries if self._goes(entry.data_file)]
        if not gone:
            return manifest
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                if self._goes(entry.data_file):
                    self._deleted_data_files.add(entry.data_file)
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def _goes(self, file: DataFile) -> bool:
        return self._change.replaces_all or file.file_path in self._change.replaced


def _schema_with(spec: PartitionSpec, metadata: TableMetadata) -> Schema:
    """The newest schema with all columns that a spec goes by: it has the types of their values."""
    newest_first = [metadata.schema(), *reversed(metadata.schemas)]

    def has_all(schema: Schema) -> bool:
        return all(schema.find_column_name(part.source_id) is not None for part in spec.fields)

    return next(filter(has_all, newest_first), metadata.schema())


def _entry(status: ManifestEntryStatus, snapshot_id: int, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


@dataclass(frozen=True)
class Commit:
    """A commit that is ready to be sent."""

    table: Table
    transaction: Transaction
    snapshot: EpochSnapshot

    @property
    def snapshot_id(self) -> int:
        return self.snapshot.snapshot_id

    def send(self) -> None:
        """Ask the catalog once.

        pyiceberg's own retry is not used: it does not look whether the mark is there already.
        """
        staged = self.transaction
        identity = AssertTableUUID(uuid=self.table.metadata.table_uuid)
        self.table._do_commit(staged._updates, (*staged._requirements, identity))

    def discard(self) -> None:
        """Remove what was written for it; only once it is certain that it did not happen."""
        self.snapshot._clean_all_uncommitted()


def new_commit(table: Table, output: Output, change: Change, mark: Mark | None) -> Commit:
    """Write the metadata of a snapshot, and make the commit that shows it.

    The mark's own snapshot may be an earlier one; 0 stands for the new one.
    """
    transaction = EpochTransaction(table)
    snapshot = EpochSnapshot(transaction, change)
    if mark is not None and mark.snapshot == 0:
        mark = msgspec.structs.replace(mark, snapshot=snapshot.snapshot_id)
    snapshot.snapshot_properties = output.summary(mark)
    snapshot.commit()
    if mark is not None:
        transaction.set_properties({output.property_name: mark.text})
    elif output.property_name in table.metadata.properties:
        transaction.remove_properties(output.property_name)
    sync_files(table.io, snapshot.written)
    return Commit(table, transaction, snapshot)


def first_metadata_with(table: Table, snapshot: int) -> str:
    """The oldest metadata file that has a snapshot, as far back as the table keeps them."""
    first = table.metadata_location
    for name, earlier in earlier_metadata(table):
        if earlier.snapshot_by_id(snapshot) is None:
            break
        first = name
    return first
