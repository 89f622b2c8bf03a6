"""Damage in what a table says of its files is damage, whatever its reader makes of it.

That a server does not answer is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import clear_manifest_cache

from seamark.audit.declared_rows import declared_schema
from seamark.audit.delta import _DeltaVersions, _OpenedTable, read_delta
from seamark.audit.iceberg import _batches, _FileLists
from seamark.errors import DamageError, StoreUnavailableError
from seamark.table_formats.iceberg_settings import static_table
from tests.audit.test_logins import of_table
from tests.sinks.support import iceberg
from tests.support.servers import s3_server

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a member is gone": lambda data: data.replace(b'"fields"', b'"fielda"'),
    "an unknown type": lambda data: data.replace(b'"long"', b'"lomg"'),
    "a negative length": lambda data: data[:5] + b"\x01" + data[6:],
    "cut off": lambda data: data[:-40],
    "cannot be unpacked": lambda data: data[:-60] + b"\xff" * 30 + data[-30:],
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("which", ["list", "manifest"])
def test_a_damaged_list_of_files_is_damage(tmp_path: Path, which: str, how: str) -> None:
    table = iceberg.make_table(tmp_path)
    table.append(pa.table({"n": [1], "word": ["a"]}, schema=iceberg.COLUMNS))
    table = iceberg.table_at(tmp_path)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    named = {"list": snapshot.manifest_list, "manifest": manifest.manifest_path}[which]
    file = Path(named.removeprefix("file://"))
    lists = _FileLists(static_table(table.metadata_location, {}, is_named=False))
    assert len(lists.added(snapshot.snapshot_id)) == 1
    damaged = DAMAGE[how](file.read_bytes())
    assert damaged != file.read_bytes()
    file.write_bytes(damaged)
    for read in (lists.added, lists.whole):
        with pytest.raises(DamageError, match="a list of the table's files cannot be read"):
            read(snapshot.snapshot_id)


def shown_of_delta(table: Path, change: Callable[[str], str]) -> list[str]:
    """What is said of a Delta table after its log was changed."""
    deltalake.write_deltalake(table, pa.table({"n": [1]}))
    log = table / "_delta_log" / f"{0:020}.json"
    log.write_text(change(log.read_text()))
    found = replace(of_table("delta", str(table), version=0), columns=(("n", "bigint"),))
    spark: Any = None
    return [shown.note for shown in read_delta(spark, found, {})]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"protocol"', '"x"'),
        lambda text: text.replace("long", "lomg"),
    ],
    ids=["cut off", "without a protocol", "an unknown type"],
)
def test_a_damaged_log_of_a_delta_table_is_damage(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    with pytest.raises(DamageError, match="the log of the table cannot be read"):
        shown_of_delta(tmp_path / "t", change)


def test_a_delta_table_that_is_too_new_to_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    newer = '"minReaderVersion":99'
    (note,) = shown_of_delta(
        tmp_path / "t", lambda text: text.replace('"minReaderVersion":1', newer)
    )
    assert note.startswith("deltalake cannot read the table: ")


class FailingIO(PyArrowFileIO):
    """Gives one file, and no other one, as it is."""

    refused = ""

    def new_input(self, location: str) -> PyArrowFile:
        if location == self.refused:
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject: no answer")
        return super().new_input(location)


@pytest.mark.parametrize("which", ["list", "manifest", "rows"])
def test_a_file_of_an_iceberg_table_that_does_not_come_is_not_called_damaged(
    tmp_path: Path, which: str
) -> None:
    made = iceberg.make_table(tmp_path)
    made.append(pa.table({"n": [1], "word": ["a"]}, schema=iceberg.COLUMNS))
    table = static_table(iceberg.table_at(tmp_path).metadata_location, {}, is_named=False)
    table.io = io = FailingIO()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(io)
    lists = _FileLists(table)
    tasks = lists.added(snapshot.snapshot_id)
    assert [batch.num_rows for batch in _batches(table, tasks)] == [1]
    (path,) = (task.file.file_path for task in tasks)
    io.refused = {
        "list": snapshot.manifest_list, "manifest": manifest.manifest_path, "rows": path,
    }[which]  # fmt: skip
    clear_manifest_cache()
    with pytest.raises(StoreUnavailableError, match="cannot be fetched: AWS Error NETWORK"):
        list(_batches(table, tasks) if which == "rows" else lists.added(snapshot.snapshot_id))


def test_a_delta_table_whose_server_ends_is_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server() as server:
        url = server.new_url("table")
        options = {
            "AWS_ENDPOINT_URL": server.endpoint_url, "AWS_ALLOW_HTTP": "true", "max_retries": "0",
            "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1", "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        }  # fmt: skip
        deltalake.write_deltalake(url, pa.table({"n": [1]}), storage_options=options)
        table, schema = _OpenedTable(url, options), declared_schema((("n", "bigint"),))
        spark: Any = None
        assert schema is not None
        versions = _DeltaVersions(spark, table, schema)
        opened = table.newest
        files = table.entries.added(0)
        assert files is not None
    monkeypatch.setattr(table, "at", lambda _: opened)
    for look in (versions.added, versions.whole):
        with pytest.raises(StoreUnavailableError, match="cannot be fetched: Generic S3 error"):
            look(0)
