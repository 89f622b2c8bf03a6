"""The metadata file that first had a snapshot is found, whatever the table's log names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import MetadataLogEntry

from seamark import limits
from seamark.sinks.iceberg.snapshots import first_metadata_with
from tests.sinks.support import iceberg

Reads = Counter[str]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted: Reads = Counter()
    read = FromInputFile.table_metadata

    def counting(file: object, *args: object) -> object:
        counted[file.location] += 1  # type: ignore[attr-defined]
        return read(file, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FromInputFile, "table_metadata", counting)
    return counted


def table_with(folder: Path, log: Callable[[list[str]], list[str]]) -> Table:
    """A table of three snapshots whose log of metadata files is another one."""
    table = iceberg.make_table(folder)
    for number in range(3):
        table.append(iceberg.lines([number]))
    names = [entry.metadata_file for entry in table.metadata.metadata_log]
    entries = [
        MetadataLogEntry.model_validate({"metadata-file": name, "timestamp-ms": number})
        for number, name in enumerate(log(names))
    ]
    table.metadata = table.metadata.model_copy(update={"metadata_log": entries})
    return table


def test_the_first_metadata_file_with_a_snapshot_is_found(tmp_path: Path, reads: Reads) -> None:
    table = table_with(tmp_path, lambda names: names)
    first, second, third = (entry.metadata_file for entry in table.metadata.metadata_log)
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    reads.clear()
    assert first_metadata_with(table, ids[2]) == table.metadata_location
    assert first_metadata_with(table, ids[1]) == third
    assert first_metadata_with(table, ids[0]) == second
    assert reads[first] == 1


def test_a_file_that_the_log_names_again_and_again_is_read_once(
    tmp_path: Path, reads: Reads
) -> None:
    table = table_with(tmp_path, lambda names: [names[-1]] * 500)
    reads.clear()
    first_metadata_with(table, table.metadata.snapshots[0].snapshot_id)
    assert reads.total() == 1


def test_a_log_of_many_files_is_searched_to_a_limit(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_TABLE_METADATA", 1)
    table = table_with(tmp_path, lambda names: names)
    reads.clear()
    first_metadata_with(table, table.metadata.snapshots[0].snapshot_id)
    assert reads.total() == 1


def test_a_file_in_another_folder_is_not_read(tmp_path: Path, reads: Reads) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere.metadata.json"
    table = table_with(tmp_path, lambda names: [*names, elsewhere])
    Path(tmp_path, "elsewhere.metadata.json").write_text("{}")
    reads.clear()
    snapshot = table.metadata.snapshots[0].snapshot_id
    assert first_metadata_with(table, snapshot) == table.metadata_location
    assert reads.total() == 0
