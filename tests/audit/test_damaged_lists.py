"""A list of an Iceberg table's files that is damaged is damage, whatever its reader makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from seamark.audit.iceberg import _FileLists
from seamark.errors import DamageError
from seamark.table_formats.iceberg_settings import static_table
from tests.sinks.support import iceberg

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
