"""Every kind of damage to a directory is named by its code, and nothing else is."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.native.inspect.findings import Code, Severity
from seamark.native.inspect.inspection import SparkAction
from seamark.native.rewind.barrier import new_barrier
from tests.checkpoint_dir.support.directories import source_entry
from tests.native.support.inspected import (
    CONF,
    Make,
    both,
    codes,
    copy_file,
    cut,
    delta,
    describe,
    drop,
    exchange,
    looked_at,
    make_checksummed,
    make_format_2,
    make_hdfs,
    make_rocksdb,
    make_schema_here,
    make_timed,
    name_schema,
    offsets,
    packed,
    put,
    rows_of,
    swap,
    write,
)


def _unfinished_repartition(root: Path) -> None:
    write(root, "offsets/8", offsets(7, conf=CONF | {"spark.sql.shuffle.partitions": "5"}))


def _unfinished_rollback(root: Path) -> None:
    """What a rollback that was killed after its first steps leaves."""
    barrier = new_barrier(Tree.of(LocalDirectory(root)), 3, None)
    (root / barrier.path).write_bytes(barrier.text)
    (root / "state/0/0/8.delta").unlink()


def _older_zip(root: Path) -> None:
    """A snapshot of an abandoned history beside the changelog of the present one."""
    for version in (1, 2, 3):
        write(root, f"state/0/0/{version}.changelog", delta(rows_of(0, version)))
    os.utime(root / "state/0/0/3.zip", (1000, 1000))
    os.utime(root / "offsets/2", (2000, 2000))


def _copied_with_its_time(root: Path) -> None:
    shutil.copy2(root / "state/0/0/6.delta", root / "state/0/0/7.delta")


def _make_two_operators(root: Path) -> None:
    make_hdfs(root)
    shutil.copytree(root / "state/0", root / "state/1")


def _make_two_sources(root: Path) -> None:
    make_hdfs(root)
    for batch in range(8):
        write(root, f"offsets/{batch}", offsets(batch, offsets(batch)[-15:]))
        write(root, f"sources/1/{batch}", source_entry(batch))


def remove(folder: str) -> Make:
    return lambda root: shutil.rmtree(root / folder)


def _without_sst(root: Path) -> None:
    min((root / "state/0/0/SSTs").iterdir()).unlink()


def _with_short_sst(root: Path) -> None:
    min((root / "state/0/0/SSTs").iterdir()).write_bytes(b"1")


def _changelog(root: Path) -> Path:
    return next((root / "state/0/0").glob("2_*.changelog"))


D, W = Severity.DAMAGE, Severity.WARNING
FAIL, NEXT, REPLAY = SparkAction.FAIL, SparkAction.NEXT, SparkAction.REPLAY
DAMAGED: list[tuple[Make, Make, Code, Severity, str, SparkAction]] = [
    (make_hdfs, drop("metadata"), Code.METADATA_MISSING, D, "metadata", FAIL),
    (make_hdfs, put("metadata", "{"), Code.METADATA_UNREADABLE, D, "metadata", FAIL),
    (make_hdfs, put("metadata", ""), Code.METADATA_UNREADABLE, D, "metadata", FAIL),
    (make_hdfs, cut("offsets/7"), Code.OFFSETS_UNREADABLE, D, "offsets/7", FAIL),
    (make_hdfs, put("offsets/7", ""), Code.OFFSETS_UNREADABLE, D, "offsets/7", FAIL),
    (make_hdfs, put("offsets/2", b"\xff"), Code.OFFSETS_UNREADABLE, D, "offsets/2", NEXT),
    (make_hdfs, drop("offsets/3"), Code.OFFSETS_GAP, D, "offsets/3", NEXT),
    (make_hdfs, drop("offsets/6"), Code.OFFSETS_PREVIOUS_MISSING, D, "offsets/6", FAIL),
    (make_hdfs, put("commits/7", ""), Code.COMMIT_UNREADABLE, D, "commits/7", FAIL),
    (make_hdfs, drop("commits/3"), Code.COMMITS_GAP, W, "commits/3", NEXT),
    (make_hdfs, drop("offsets/7"), Code.COMMIT_WITHOUT_OFFSETS, D, "commits/7", REPLAY),
    (make_hdfs, drop("sources/0/7"), Code.SOURCE_LOG_MISSING, D, "sources/0/7", FAIL),
    (make_hdfs, drop("sources/0/4"), Code.SOURCE_LOG_GAP, D, "sources/0/4", FAIL),
    (make_hdfs, put("sources/0/4", ""), Code.SOURCE_LOG_DAMAGED, D, "sources/0/4", FAIL),
    (make_hdfs, cut("sources/0/4"), Code.SOURCE_LOG_DAMAGED, D, "sources/0/4", FAIL),
    (
        make_hdfs,
        drop("state/0/_metadata/metadata"),
        Code.OPERATOR_METADATA_MISSING,
        W,
        "state/0/_metadata/metadata",
        NEXT,
    ),
    (
        make_schema_here,
        drop("state/0/_metadata/v2/0", "state/0/_metadata/metadata"),
        Code.OPERATOR_METADATA_MISSING,
        D,
        "state/0/_metadata/v2",
        FAIL,
    ),
    (
        make_hdfs,
        put("state/0/_metadata/metadata", "v1\n{}"),
        Code.OPERATOR_METADATA_UNREADABLE,
        D,
        "state/0/_metadata/metadata",
        NEXT,
    ),
    (
        make_hdfs,
        lambda root: name_schema(root, "/elsewhere"),
        Code.SCHEMA_ELSEWHERE,
        W,
        "state/0/_metadata/v2/0",
        NEXT,
    ),
    (
        make_schema_here,
        drop("state/0/_stateSchema/default/0_aa"),
        Code.SCHEMA_MISSING,
        D,
        "state/0/_stateSchema/default/0_aa",
        FAIL,
    ),
    (make_hdfs, drop("state/0/1/8.delta"), Code.BATCH_NOT_CONSUMED, D, "0/1/8.delta", FAIL),
    (make_hdfs, drop("state/0/1/7.delta"), Code.STATE_MISSING, D, "state/0/1/7.delta", FAIL),
    (
        make_checksummed,
        drop("state/0/1/8.delta"),
        Code.STATE_MISSING,
        D,
        "state/0/1/8.delta",
        FAIL,
    ),
    (make_hdfs, put("state/0/1/7.delta", ""), Code.STATE_EMPTY, D, "state/0/1/7.delta", FAIL),
    (make_hdfs, put("state/0/1/2.delta", ""), Code.STATE_EMPTY, D, "state/0/1/2.delta", NEXT),
    (make_hdfs, cut("state/0/1/7.delta"), Code.STATE_UNREADABLE, D, "state/0/1/7.delta", FAIL),
    (make_rocksdb, _without_sst, Code.SST_MISSING, D, "SSTs/", FAIL),
    (make_rocksdb, _with_short_sst, Code.SST_SIZE, D, "SSTs/", FAIL),
    (make_rocksdb, cut("state/0/0/3.zip"), Code.ZIP_UNREADABLE, D, "3.zip", FAIL),
    (make_rocksdb, _older_zip, Code.SNAPSHOT_STALE, W, "3.zip", NEXT),
    (
        make_timed,
        copy_file("state/0/0/6.delta", "state/0/0/7.delta"),
        Code.STATE_REPEATED,
        W,
        "state/0/0/7.delta",
        NEXT,
    ),
    (
        make_timed,
        _copied_with_its_time,
        Code.STATE_REPEATED,
        W,
        "state/0/0/7.delta",
        NEXT,
    ),
    (
        make_checksummed,
        both(copy_file("state/0/0/6.delta", "state/0/0/7.delta"), drop("state/0/0/.7.delta.crc")),
        Code.STATE_REPEATED,
        W,
        "state/0/0/7.delta",
        NEXT,
    ),
    (
        make_timed,
        exchange("state/0/0/6.delta", "state/0/0/7.delta"),
        Code.STATE_OUT_OF_ORDER,
        W,
        "state/0/0/7.delta",
        NEXT,
    ),
    (
        make_timed,
        swap("state/0/0/6.delta", "state/0/0/7.delta"),
        Code.STATE_OUT_OF_ORDER,
        W,
        "state/0/0/6.delta",
        NEXT,
    ),
    (make_hdfs, remove("state/0/1"), Code.STATE_MISSING, D, "state/0/1", FAIL),
    (_make_two_operators, remove("state/0"), Code.STATE_MISSING, D, "state/0", FAIL),
    (_make_two_sources, remove("sources/0"), Code.SOURCE_LOG_MISSING, D, "offsets/7", FAIL),
    (_make_two_sources, drop("sources/1/7"), Code.SOURCE_LOG_MISSING, D, "sources/1/7", FAIL),
    (
        make_hdfs,
        swap("state/0/0/7.delta", "state/0/1/7.delta"),
        Code.KEY_IN_TWO_PARTITIONS,
        D,
        "state/0/1/",
        NEXT,
    ),
    (
        make_hdfs,
        put("state/0/1/12.snapshot", delta(rows_of(1, 12))),
        Code.STATE_NEWER_THAN_LOG,
        D,
        "state/0/1/12.snapshot",
        NEXT,
    ),
    (
        make_hdfs,
        put("state/0/1/10.delta", delta(rows_of(1, 10))),
        Code.STATE_NEWER_THAN_LOG,
        W,
        "state/0/1/10.delta",
        NEXT,
    ),
    (
        make_hdfs,
        put("state/0/1/5.snapshot", delta({"1-all": "77"})),
        Code.SNAPSHOT_DISAGREES,
        D,
        "state/0/1/5.snapshot",
        NEXT,
    ),
    (
        make_checksummed,
        put("state/0/1/7.delta", delta({"1-all": "seven"})),
        Code.HADOOP_CHECKSUM,
        W,
        "state/0/1/7.delta",
        NEXT,
    ),
    (
        make_checksummed,
        put("offsets/6", offsets(6, "-")),
        Code.HADOOP_CHECKSUM,
        W,
        "offsets/6",
        NEXT,
    ),
    (
        make_format_2,
        lambda root: write(root, f"state/0/0/{_changelog(root).name}.crc", "{}"),
        Code.SPARK_CHECKSUM,
        D,
        "state/0/0/2_",
        FAIL,
    ),
    (make_hdfs, _unfinished_repartition, Code.REPARTITION_UNFINISHED, D, "offsets/8", FAIL),
    (make_hdfs, put("offsets/5", offsets(3)), Code.OFFSETS_BACKWARDS, W, "offsets/5", NEXT),
    (make_hdfs, _unfinished_rollback, Code.ROLLBACK_UNFINISHED, D, "offsets/8", FAIL),
]


@pytest.mark.parametrize(
    ("make", "do", "code", "severity", "path", "action"),
    [pytest.param(*case, id=f"{number}-{case[2]}") for number, case in enumerate(DAMAGED)],
)
def test_each_kind_of_damage_is_named_and_nothing_else(
    make: Make,
    do: Make,
    code: Code,
    severity: Severity,
    path: str,
    action: SparkAction,
    tmp_path: Path,
) -> None:
    root = tmp_path / "ck"
    make(root)
    assert looked_at(root).findings == []
    do(root)
    found = looked_at(root)
    assert set(codes(found)) == {str(code)}
    assert [f.severity for f in found.findings] == [severity] * len(found.findings)
    assert path in found.findings[0].path
    assert found.findings[0].advice
    assert found.would_do.action == action
    assert found.is_damaged == (severity == D)


def test_a_delta_of_another_partition_is_named_although_spark_loads_it(tmp_path: Path) -> None:
    make_hdfs(tmp_path, snapshot=None)
    shutil.copy(tmp_path / "state/0/0/6.delta", tmp_path / "state/0/1/6.delta")
    found = {finding.code: finding for finding in looked_at(tmp_path).findings}
    assert found[Code.STATE_DUPLICATED].severity == D
    assert "state/0/1/6.delta" in found[Code.STATE_DUPLICATED].message
    assert set(found) == {Code.STATE_DUPLICATED, Code.KEY_IN_TWO_PARTITIONS}


def test_a_hole_that_a_restart_does_not_need_is_a_warning(tmp_path: Path) -> None:
    make_hdfs(tmp_path)
    (tmp_path / "state/0/1/3.delta").unlink()
    found = looked_at(tmp_path)
    assert [(f.code, f.severity) for f in found.findings] == [(Code.STATE_MISSING, W)]
    assert found.restorable == [0, 1, 4, 5, 6, 7]


def test_a_snapshot_of_rocksdb_that_comes_back_is_a_copy(tmp_path: Path) -> None:
    make_rocksdb(tmp_path)
    shutil.copy(tmp_path / "state/0/0/3.zip", tmp_path / "state/0/0/2.zip")
    assert looked_at(tmp_path).findings == []  # a batch that changes nothing gives the same again
    (tmp_path / "state/0/0/2.zip").rename(tmp_path / "state/0/0/1.zip")
    write(tmp_path, "state/0/0/2.zip", b"another one")
    assert codes(looked_at(tmp_path)) == ["state-duplicated"]


def test_a_file_that_was_put_back_after_a_loss_is_no_finding(tmp_path: Path) -> None:
    make_timed(tmp_path)
    file = tmp_path / "state/0/0/7.delta"
    write(tmp_path, "state/0/0/7.delta", file.read_bytes())
    assert looked_at(tmp_path).findings == []


def test_an_operator_that_the_commit_log_names_is_missed(tmp_path: Path) -> None:
    make_format_2(tmp_path)
    newest = max((tmp_path / "commits").iterdir(), key=lambda path: int(path.name))
    newest.write_text(newest.read_text().replace('"0": [[', '"1": [["x"]], "0": [['))
    assert [(f.code, f.path) for f in looked_at(tmp_path).findings] == [
        (Code.STATE_MISSING, "state/1")
    ]


def _snapshot_with(root: Path, scratch: Path, rows: dict[bytes, bytes]) -> None:
    """``3.zip`` as Spark makes one out of a database."""
    rocksdict = pytest.importorskip("rocksdict")
    database = rocksdict.Rdict(str(scratch), rocksdict.Options(raw_mode=True))
    for key, value in rows.items():
        database[key] = value
    database.flush()
    database.close()
    named = []
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(scratch.iterdir()):
            if file.suffix == ".sst":
                kept = write(root, f"state/0/0/SSTs/{file.stem}-aa.sst", file.read_bytes())
                size = kept.stat().st_size
                names = {"localFileName": file.name, "dfsSstFileName": kept.name}
                named.append(names | {"sizeBytes": size})
            elif file.name.startswith(("CURRENT", "MANIFEST", "OPTIONS")):
                archive.write(file, file.name)
        archive.writestr("metadata", f"v1\n{json.dumps({'sstFiles': named})}")
    write(root, "state/0/0/3.zip", out.getvalue())


def test_a_snapshot_of_rocksdb_is_compared_with_the_changes_that_made_it(tmp_path: Path) -> None:
    root = tmp_path / "ck"
    make_rocksdb(root)
    rows = {b"key-1": b"one", b"key-2": b"two"}
    _snapshot_with(root, tmp_path / "database", rows)
    for version in (1, 2):
        write(root, f"state/0/0/{version}.changelog", packed({b"key-1": b"1", b"gone": b"x"}))
    write(root, "state/0/0/3.changelog", packed(rows | {b"gone": None}))
    assert looked_at(root, read_data=True).findings == []
    write(root, "state/0/0/3.changelog", packed(rows | {b"key-1": b"another", b"gone": None}))
    found = looked_at(root, read_data=True)
    assert [(f.code, f.severity) for f in found.findings] == [(Code.SNAPSHOT_DISAGREES, D)]
    assert "3.zip" in found.findings[0].path
    assert "what it computes may be wrong" in found.would_do.text


def test_an_idle_store_has_the_same_snapshot_in_every_partition(tmp_path: Path) -> None:
    make_rocksdb(tmp_path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[],"numKeys":0}')
    for partition in (0, 1):
        write(tmp_path, f"state/0/{partition}/3.zip", out.getvalue())
    describe(tmp_path, 0, 2)
    assert looked_at(tmp_path, read_data=True).findings == []
