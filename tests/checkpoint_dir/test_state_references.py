"""No file of a checkpoint directory leads Spark to the files of others."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint_dir.formats.hdfs_state import parse_lineage
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_references import require_state_inside, require_version_inside
from seamark.errors import DamageError
from tests.native.support.inspected import make_format_2, make_rocksdb

NO_SPARK: Any = None
ELSEWHERE = ["../../x.sst", "/etc/x.sst", "file:x.sst", "s3a://b/x.sst", "..", "", "a b", "é.sst"]


def snapshot(**names: str) -> bytes:
    listed = {"localFileName": "1.sst", "dfsSstFileName": "1-a.sst", "sizeBytes": 1, **names}
    return made_of("v1\n" + json.dumps({"sstFiles": [listed]}))


def made_of(metadata: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("metadata", metadata)
    return data.getvalue()


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("member", ["localFileName", "dfsSstFileName"])
def test_a_snapshot_names_no_place_to_copy_from_or_to(
    member: str, name: str, tmp_path: Path
) -> None:
    copy = LocalCopy(make_rocksdb(tmp_path))
    require_state_inside(copy)
    copy.write("state/0/0/3.zip", snapshot(**{member: name}))
    with pytest.raises(DamageError, match="could lead out of its directory") as error:
        require_state_inside(copy)
    assert "state/0/0/3.zip" in str(error.value)
    with pytest.raises(DamageError):
        require_version_inside(copy, [0], 3, NO_SPARK)


def test_a_log_of_a_snapshot_is_copied_from_nowhere_else(tmp_path: Path) -> None:
    copy = LocalCopy(make_rocksdb(tmp_path))
    log = {"localFileName": "../1.log", "dfsLogFileName": "1-a.log", "sizeBytes": 1}
    copy.write("state/0/0/3.zip", made_of("v1\n" + json.dumps({"logFiles": [log]})))
    with pytest.raises(DamageError, match="could lead out"):
        require_state_inside(copy)


@pytest.mark.parametrize(
    "metadata",
    [
        'v1\r{"sstFiles":[{"localFileName":"../x","dfsSstFileName":"a"}]}\n{}',
        'v1\n{"sstFiles":[{"localFileName":"../x","dfsSstFileName":"a"}],"sstFiles":[]}',
        'v1\n{"sstFiles":[{"localFileName":"../x","localFileName":"x","dfsSstFileName":"a"}]}',
    ],
    ids=["another end of a line", "two lists", "two names"],
)
def test_what_spark_may_read_in_another_way_is_damage(metadata: str, tmp_path: Path) -> None:
    copy = LocalCopy(make_rocksdb(tmp_path))
    copy.write("state/0/0/3.zip", made_of(metadata))
    with pytest.raises(DamageError, match="not a RocksDB snapshot"):
        require_state_inside(copy)


def test_only_snapshots_that_spark_can_load_for_a_version_are_asked(tmp_path: Path) -> None:
    copy = LocalCopy(make_rocksdb(tmp_path))
    for other in ("2.zip", "4.zip"):
        copy.write(f"state/0/0/{other}", b"torn")
    copy.write("state/1/0/3.zip", b"torn")
    require_version_inside(copy, [0], 3, NO_SPARK)
    for version in (2, 4):
        with pytest.raises(DamageError, match="not a RocksDB snapshot"):
            require_version_inside(copy, [0], version, NO_SPARK)
    with pytest.raises(DamageError):
        require_state_inside(copy)


@pytest.mark.parametrize("uid", ["../../1", "x/../../../other/2_ab", "", ".", "a:b"])
def test_the_commit_log_names_no_files_of_others(uid: str, tmp_path: Path) -> None:
    copy = LocalCopy(make_format_2(tmp_path))
    require_state_inside(copy)
    newest = copy.batches("commits")[-1]
    ids = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[uid]]}}
    copy.write(f"commits/{newest}", f"v2\n{json.dumps(ids)}".encode())
    with pytest.raises(DamageError, match="ids of its state files") as error:
        require_state_inside(copy)
    assert f"commits/{newest}" in str(error.value)
    with pytest.raises(DamageError, match="ids of its state files"):
        require_version_inside(copy, [0], newest + 1, NO_SPARK)


def test_a_lineage_names_no_files_of_others() -> None:
    assert parse_lineage(b'[{"version":1,"checkpointUniqueId":"ab-1"}]') == {1: "ab-1"}
    for text in (
        b'[{"version":1,"checkpointUniqueId":"../ab"}]',
        b'[{"version":1,"checkpointUniqueId":"../ab","checkpointUniqueId":"ab"}]',
        b'{"version":1}',
        b"\xff",
    ):
        with pytest.raises(DamageError, match="lineage cannot be read"):
            parse_lineage(text)


def test_a_changelog_with_an_id_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    copy = LocalCopy(make_format_2(tmp_path))
    copy.write("state/0/0/9_ab.changelog", b"nothing that is known")
    with pytest.raises(DamageError):
        require_state_inside(copy)
