"""What Spark accepts in its own files is read as Spark reads it, by every command alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark import open_store
from seamark.checkpoint_dir.file_logs.sink_log import rewound
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import DamageError, RefusedError
from seamark.native.inspect.findings import Code, Severity
from seamark.native.inspect.inspection import SparkAction
from seamark.native.restore import restore_directory
from seamark.native.snapshot import Snapshot, take_snapshot
from seamark.native.state_choice import format_version
from seamark.spark.batch_log import parse_commit, parse_offsets
from tests.checkpoint_dir.support.directories import source_entry
from tests.native.support.inspected import (
    CONF,
    codes,
    describe,
    hadoop_crc,
    looked_at,
    make_hdfs,
    make_logs,
    offsets,
    write,
)


def taken(root: Path) -> Snapshot:
    with open_store(root.parent / "store") as store:
        return take_snapshot(LocalDirectory(root), store)


# line ends


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_end_at_the_end_of_the_offsets_is_no_source(end: str) -> None:
    text = 'v1\n{"batchWatermarkMs":5}\n{"logOffset":1}\n-'
    entry = parse_offsets(text.replace("\n", end) + end)
    assert entry.lines == ('{"logOffset":1}', "-")
    assert entry.watermark_ms == 5
    named = parse_offsets(f"v2{end}{{}}{end}a:1{end}b:-{end}")
    assert (named.names, named.lines) == (("a", "b"), ("1", "-"))


def test_offsets_of_the_first_sparks_have_no_metadata() -> None:
    assert parse_offsets("v1\n\n5").lines == ("5",)
    with pytest.raises(DamageError):
        parse_offsets("v2\n\na:5")


def test_a_commit_ends_with_its_second_line() -> None:
    assert parse_commit('v1\n{"nextBatchWatermarkMs":7}\n') == (7, None)
    assert parse_commit('v1\r\n{"nextBatchWatermarkMs":7}\r\nmore') == (7, None)


def test_a_newline_at_the_end_of_each_log_changes_nothing(tmp_path: Path) -> None:
    root = make_hdfs(tmp_path / "ck", 12)
    write(root, "sources/0/9.compact", _compaction(9))
    before = looked_at(root)
    for path in ("offsets/11", "offsets/10", "commits/11", "sources/0/11", "sources/0/9.compact"):
        write(root, path, (root / path).read_text() + "\n")
    found = looked_at(root)
    assert (found.findings, found.sources) == ([], before.sources)
    assert taken(root).batch == 11
    with open_store(tmp_path / "store") as store:
        manifest = store.load_by_id(1)
        assert manifest is not None
        assert list(manifest.source_offsets) == ["source-0"]
        restore_directory(store, 1, LocalDirectory(tmp_path / "new"))
    new = LocalCopy(tmp_path / "new")
    # the logs of batches come back as they were, those of sources as Spark writes them
    assert new.read("offsets/11") == (root / "offsets/11").read_bytes()
    assert new.read_text("sources/0/11") == source_entry(11)
    assert new.read_text("sources/0/9.compact") == _compaction(9)


def _compaction(last: int) -> str:
    lines = [source_entry(number).partition("\n")[2] for number in range(last + 1)]
    return "\n".join(["v1", *lines])


def test_a_newline_at_the_end_of_a_sinks_log_changes_nothing() -> None:
    def line(name: str) -> str:
        return f'{{"path":"file:///out/{name}","size":1,"isDir":false,"action":"add"}}'

    log = {"0": f"v1\n{line('a')}\n", "1": "v1\n", "2": f"v1\n{line('b')}\n"}
    rewind = rewound(log.keys(), log.__getitem__, 1)
    assert (rewind.keep, rewind.remove) == (("0", "1"), ("2",))
    assert rewind.unlisted == ("file:///out/b",)


# ids of state files


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_an_empty_map_of_state_ids_means_that_files_carry_none(
    version: str, tmp_path: Path
) -> None:
    root = make_hdfs(tmp_path / "ck")
    for batch in range(8):
        write(root, f"commits/{batch}", f'{version}\n{{"stateUniqueIds":{{}}}}')
    found = looked_at(root)
    assert (found.findings, found.checkpoint_format) == ([], 1)
    assert taken(root).batch == 7
    assert format_version(Tree.of(LocalDirectory(root)), 7) == 1


# numbers


def test_a_time_beyond_64_bits_is_damage_to_inspect_and_to_snapshot(tmp_path: Path) -> None:
    root = make_hdfs(tmp_path / "ck")
    write(root, "commits/7", f'v1\n{{"nextBatchWatermarkMs":{2**63}}}')
    assert codes(looked_at(root)) == [Code.COMMIT_UNREADABLE]
    with pytest.raises(DamageError, match="not a number that Spark takes"):
        taken(root)


# checksums


def test_a_hidden_checksum_that_differs_is_told_with_the_file_manager_that_looks_at_it(
    tmp_path: Path,
) -> None:
    make_hdfs(tmp_path)
    write(tmp_path, "offsets/.7.crc", hadoop_crc(b"other bytes"))
    found = looked_at(tmp_path)
    (finding,) = found.findings
    assert (finding.code, finding.severity) == (Code.HADOOP_CHECKSUM, Severity.WARNING)
    assert "default file manager, by FileContext, does not look at it" in finding.message
    assert "FileSystemBasedCheckpointFileManager a restart fails" in finding.message
    assert (found.is_damaged, found.would_do.action) == (False, SparkAction.NEXT)


# which Spark it was

_SINCE = {
    "2.2": "spark.sql.shuffle.partitions",
    "2.3": "spark.sql.streaming.stateStore.providerClass",
    "2.4": "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "3.0": "spark.sql.streaming.join.stateFormatVersion",
    "3.1": "spark.sql.streaming.stateStore.compression.codec",
    "3.2": "spark.sql.streaming.stateStore.rocksdb.formatVersion",
    "3.3 to 3.5": "spark.sql.streaming.statefulOperator.useStrictDistribution",
    "4.0 or 4.1": "spark.sql.streaming.stateStore.encodingFormat",
    "4.2": "spark.sql.streaming.stateStore.rowChecksum.enabled",
    "4.3 or newer": "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
}


@pytest.mark.parametrize("version", _SINCE)
def test_the_version_is_told_by_the_settings_that_it_pins(version: str, tmp_path: Path) -> None:
    make_logs(tmp_path, 1)
    names = list(_SINCE.values())[: list(_SINCE).index(version) + 1]
    write(tmp_path, "offsets/0", offsets(0, conf=dict.fromkeys(names, "2")))
    assert looked_at(tmp_path).spark == version


def test_operators_are_described_from_spark_4_on(tmp_path: Path) -> None:
    make_hdfs(tmp_path)
    few = {name: value for name, value in CONF.items() if "encoding" not in name}
    for batch in range(8):
        write(tmp_path, f"offsets/{batch}", offsets(batch, conf=few))
    assert looked_at(tmp_path).spark == "4.0"
    (tmp_path / "state/0/_metadata/metadata").unlink()
    assert looked_at(tmp_path).spark == "3.1"
    describe(tmp_path, 0, 2)


# gaps


def test_the_error_that_is_quoted_is_the_one_that_spark_gives(tmp_path: Path) -> None:
    root = make_hdfs(tmp_path)
    (root / "offsets/6").unlink()
    assert looked_at(root).would_do.text.count('with "batch 6 doesn\'t exist" (offsets/6)') == 1
    (root / "commits/7").unlink()
    told = looked_at(root).would_do.text
    assert 'with "Previous batch 6 not found in offset log" (before Spark 4.2: "batch 6' in told


def test_batches_that_asynchronous_progress_tracking_left_out_are_told_as_such(
    tmp_path: Path,
) -> None:
    root = make_logs(tmp_path / "ck", 8)
    for batch in (1, 2, 4, 6):
        (root / f"offsets/{batch}").unlink()
        (root / f"commits/{batch}").unlink()
    found = looked_at(root)
    assert not found.is_damaged
    assert found.would_do.action == SparkAction.NEXT
    assert set(codes(found)) == {Code.OFFSETS_PREVIOUS_MISSING, Code.OFFSETS_GAP}
    with pytest.raises(RefusedError, match="asynchronous progress tracking") as refused:
        taken(root)
    assert "asyncProgressTrackingCheckpointIntervalMs" in str(refused.value.hint)
    write(root, "offsets/6", offsets(6))
    assert taken(root).batch == 7


# the query's id


@pytest.mark.parametrize("query_id", ["x", "x/../y", "", 5, "\ud800", "1-1-1-1", "g-1-1-1-1", None])
def test_an_id_that_is_no_uuid_is_damage_to_inspect_and_to_snapshot(
    query_id: object, tmp_path: Path
) -> None:
    make_hdfs(root := tmp_path / "checkpoint")
    write(root, "metadata", json.dumps({"id": query_id}))
    assert [each.code for each in looked_at(root).findings] == ["metadata-unreadable"]
    with pytest.raises(DamageError, match="no UUID"):
        taken(root)


def test_java_takes_short_ids_too(tmp_path: Path) -> None:
    make_hdfs(root := tmp_path / "checkpoint")
    write(root, "metadata", '{"id":"1-1-1-1-1"}')
    assert codes(looked_at(root)) == []
