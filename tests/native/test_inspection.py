"""An inspection names what is wrong with a directory, and is silent about one that is well."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint_dir.places.directory import Directory, FileEntry, open_directory
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import CheckpointNotFoundError
from seamark.native.inspect.findings import Code, Severity
from seamark.native.inspect.inspection import SparkAction, inspect
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.store import open_store
from tests.checkpoint_dir.support.directories import make_copy, source_entry
from tests.native.support.growing import GrowingDirectory
from tests.native.support.inspected import (
    CONF,
    Make,
    codes,
    delta,
    describe,
    in_time,
    looked_at,
    make_checksummed,
    make_format_2,
    make_hdfs,
    make_logs,
    make_replaying,
    make_rocksdb,
    make_schema_here,
    make_timed,
    offsets,
    rows_of,
    write,
)
from tests.support.servers import ObjectServer

NO_KEY = b'\0\2v2\0\0\0\1\0\x1d{"type":"struct","fields":[]}\0\0\0\1{"type":"struct","fields":[{}]}'


def _first_planned_only(root: Path) -> None:
    write(root, "metadata", '{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    write(root, "offsets/0", offsets(0))
    write(root, "sources/0/0", source_entry(0))


def _one_partition_of_many(root: Path) -> None:
    make_logs(root, 3)
    describe(root, 0, 200)
    write(root, "state/0/0/_metadata/schema", NO_KEY)
    for version in (1, 2, 3):
        write(root, f"state/0/0/{version}.delta", delta(rows_of(0, version)))


def _several_stores(root: Path) -> None:
    make_logs(root, 2)
    describe(root, 0, 2, "left", "right")
    describe(root, 1, 2)
    for partition in (0, 1):
        for version in (1, 2):
            # both sides of a join may well hold the same
            for store in ("0", "1"):
                place = f"state/{store}/{partition}/"
                sides = ("left/", "right/") if store == "0" else ("",)
                for side in sides:
                    rows = rows_of(partition, version)
                    write(root, f"{place}{side}{version}.delta", delta(rows))


def _zombies(root: Path) -> None:
    make_format_2(root)
    write(root, "state/0/0/2_00000000-0000-4000-8000-000000000000.changelog", b"torn")
    write(root, "state/0/0/3_00000000-0000-4000-8000-000000000000.changelog", b"")


def _nothing_changed(root: Path) -> None:
    make_hdfs(root, 5, snapshot=None)
    for partition in (0, 1):
        for version in (3, 4, 5):
            write(root, f"state/0/{partition}/{version}.delta", delta({}))


def _same_rows_all_the_time(root: Path) -> None:
    make_hdfs(root, 5, snapshot=None)
    for partition in (0, 1):
        for version in (1, 2, 3, 4, 5):
            rows = {f"{partition}-all": "the least"}
            write(root, f"state/0/{partition}/{version}.delta", delta(dict(rows)))


def _same_rows_once_more(root: Path) -> None:
    """As a deduplication does when all of its keys have expired, and a join at any time."""
    make_hdfs(root, snapshot=None)
    for partition in (0, 1):
        write(root, f"state/0/{partition}/6.delta", delta(rows_of(partition, 3)))
    in_time(root)


def _snapshots_of_an_idle_partition(root: Path) -> None:
    make_rocksdb(root)
    shutil.copy(root / "state/0/0/3.zip", root / "state/0/0/1.zip")
    for version in (1, 2, 3):
        write(root, f"state/0/0/{version}.changelog", delta(rows_of(0, version)))


def _went_on_after_a_restore(root: Path) -> None:
    in_time(make_hdfs(root), first=4)


def _one_source_used_twice(root: Path) -> None:
    """Lines go by the leaves of the plan, folders by the sources."""
    make_logs(root, 6)
    write(root, "sources/1/0", source_entry(0))
    for batch in range(6):
        write(root, f"offsets/{batch}", offsets(batch, '{"logOffset":0}', offsets(batch)[-15:]))


def _twice_beside_another_kind(root: Path) -> None:
    make_logs(root, 6)
    write(root, "sources/1/0", "0v1\n1700000000000")
    for batch in range(6):
        write(root, f"offsets/{batch}", offsets(batch, offsets(batch)[-15:], str(batch)))


def _repartitioned(root: Path) -> None:
    """Spark's offline runner leaves the old number of partitions in what describes them."""
    make_logs(root, 4)
    describe(root, 0, 3)
    for batch in (0, 1):
        write(
            root,
            f"offsets/{batch}",
            offsets(batch, conf=CONF | {"spark.sql.shuffle.partitions": "3"}),
        )
    for partition in (0, 1, 2):
        for version in (1, 2):
            write(root, f"state/0/{partition}/{version}.delta", delta(rows_of(partition, version)))
    for partition in (0, 1):
        for version in (3, 4):
            rows = delta({f"new-{partition}": str(version)})
            write(
                root,
                f"state/0/{partition}/{version}.{'snapshot' if version == 3 else 'delta'}",
                rows,
            )


HEALTHY: dict[str, Make] = {
    "stateless": lambda root: make_logs(root, 3),
    "a query that has not begun": lambda root: write(
        root, "metadata", '{"id":"6f1c0000-0000-4000-8000-000000000000"}'
    ),
    "first batch planned only": _first_planned_only,
    "HDFS-backed": make_hdfs,
    "a batch in flight": make_replaying,
    "old batches purged": lambda root: make_hdfs(root, 30, first=20, snapshot=25),
    "RocksDB": make_rocksdb,
    "checkpoint format 2": make_format_2,
    "files of zombie tasks": _zombies,
    "one partition though many are noted": _one_partition_of_many,
    "several operators and stores": _several_stores,
    "batches without changes": _nothing_changed,
    "a query that writes the same rows again": _same_rows_all_the_time,
    "a query that writes the same rows once more": _same_rows_once_more,
    "snapshots of an idle partition": _snapshots_of_an_idle_partition,
    "files that Spark wrote in time": make_timed,
    "a history that begins with a restore": _went_on_after_a_restore,
    "one file source used twice": _one_source_used_twice,
    "one file source used twice beside another kind": _twice_beside_another_kind,
    "fewer partitions than before": _repartitioned,
    "Hadoop's checksums": make_checksummed,
    "schema by path": make_schema_here,
    "bytes of an unknown codec": lambda root: make_copy(root, 4),
}


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.parametrize("read_data", [False, True])
def test_nothing_is_found_where_nothing_is_wrong(
    kind: str, read_data: bool, tmp_path: Path
) -> None:
    HEALTHY[kind](tmp_path / "ck")
    found = looked_at(tmp_path / "ck", read_data=read_data)
    assert found.findings == []
    assert found.would_do.action in (SparkAction.START, SparkAction.NEXT, SparkAction.REPLAY)
    assert all(operator.is_complete for operator in found.operators)


def test_every_code_is_in_the_table_of_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "native.md").read_text()
    table = page.partition("### Findings")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE))
    assert listed == {str(code) for code in Code}


def test_old_temporary_files_are_told_and_new_ones_are_not(tmp_path: Path) -> None:
    make_hdfs(tmp_path)
    file = write(tmp_path, "state/0/0/.9.delta.0aa1.tmp", b"half")
    assert looked_at(tmp_path).findings == []
    os.utime(file, (1000, 1000))
    found = looked_at(tmp_path)
    assert codes(found) == ["temporary-files"]
    assert not found.is_damaged


def test_a_source_log_that_is_gone_is_named(tmp_path: Path) -> None:
    shutil.rmtree(make_hdfs(tmp_path) / "sources")
    found = looked_at(tmp_path)
    assert codes(found) == ["source-log-missing"]
    assert found.would_do.action == SparkAction.FAIL


def test_state_of_never_planned_batches_is_harmless_where_ids_tell_it_apart(tmp_path: Path) -> None:
    make_format_2(tmp_path)
    write(tmp_path, "state/0/0/9_aaaa.changelog", b"an abandoned history")
    assert [f.severity for f in looked_at(tmp_path).findings] == [Severity.INFO]


def test_the_advice_is_a_rollback_to_the_newest_batch_that_is_whole(tmp_path: Path) -> None:
    make_hdfs(tmp_path)
    (tmp_path / "state/0/1/8.delta").unlink()
    found = looked_at(tmp_path)
    assert found.restorable == [0, 1, 2, 3, 4, 5, 6]
    assert f"seamark spark rollback {tmp_path} --to-batch 6" in found.findings[0].advice
    (tmp_path / "state/0/0/7.delta").unlink()
    assert "--to-batch 5" in looked_at(tmp_path).findings[0].advice


def test_what_a_restart_does_is_told_in_words(tmp_path: Path) -> None:
    root = make_hdfs(tmp_path / "a")
    assert looked_at(root).would_do.text == "a restart plans batch 8 and runs it"
    make_replaying(tmp_path / "b")
    found = looked_at(tmp_path / "b")
    assert found.would_do.text == "a restart runs batch 8 again from the same offsets"
    assert (found.committed, found.planned) == (7, 8)
    write(tmp_path / "c", "metadata", '{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    assert "from scratch" in looked_at(tmp_path / "c").would_do.text
    (root / "metadata").unlink()
    assert "MISSING_METADATA_FILE" in looked_at(root).would_do.text


def test_sources_operators_and_sizes_are_told(tmp_path: Path) -> None:
    make_hdfs(tmp_path)
    found = looked_at(tmp_path)
    assert (found.spark, found.offset_log, found.checkpoint_format) == ("4.0 or 4.1", "v1", 1)
    assert [(s.kind, s.folder, s.offset) for s in found.sources] == [
        ("files", "file:///in", {"logOffset": "7"})
    ]
    operator = found.operators[0]
    assert (operator.provider, operator.partitions, operator.version) == ("HDFS-backed", 2, 8)
    below = [path for path in (tmp_path / "state/0/1").iterdir() if path.is_file()]
    assert operator.partition_sizes[1] == sum(path.stat().st_size for path in below)
    make_rocksdb(tmp_path / "r")
    make_format_2(tmp_path / "f")
    assert looked_at(tmp_path / "r").operators[0].provider == "RocksDB"
    assert looked_at(tmp_path / "f").operators[0].provider == "RocksDB changelog"
    assert looked_at(tmp_path / "f").checkpoint_format == 2


@pytest.mark.parametrize("sources", [12, 13, 16, 17])
def test_a_query_of_many_file_sources_is_well(sources: int, tmp_path: Path) -> None:
    """Of so many nobody can tell which line of the offsets belongs to which."""
    lines = ['{"logOffset":0}'] * (sources - 1)
    write(tmp_path, "metadata", '{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    write(tmp_path, "offsets/0", offsets(0, *lines))
    write(tmp_path, "commits/0", 'v1\n{"nextBatchWatermarkMs":0}')
    for number in range(sources):
        write(tmp_path, f"sources/{number}/0", source_entry(0))
    assert codes(looked_at(tmp_path)) == []


def test_each_line_is_told_with_the_folder_of_its_own_source(tmp_path: Path) -> None:
    _one_source_used_twice(tmp_path)
    write(tmp_path, "sources/1/0", source_entry(0).replace("/in/", "/other/"))
    assert [source.folder for source in looked_at(tmp_path).sources] == [
        "file:///in",
        "file:///other",
        "file:///in",
    ]


def test_passwords_in_offsets_are_not_shown(tmp_path: Path) -> None:
    make_logs(tmp_path, 2)
    secret = '{"url":"jdbc://me:hunter2secret@host/db","password":"hunter2secret"}'
    for batch in (0, 1):
        write(tmp_path, f"offsets/{batch}", offsets(batch, secret))
    assert "hunter2secret" not in repr(looked_at(tmp_path))


# directories in use


class Moving(LocalDirectory):
    """A directory whose first listing misses what is written a moment later."""

    def __init__(self, root: Path, late: str) -> None:
        super().__init__(root)
        self.late = late
        self.listings = 0

    def listing(self) -> dict[str, FileEntry]:
        found = super().listing()
        self.listings += 1
        if self.listings == 1:
            del found[self.late]
        return found


@pytest.mark.parametrize("late", ["state/0/1/8.delta", "offsets/7", "sources/0/7", "metadata"])
def test_a_file_that_a_running_query_has_just_written_is_not_missing(
    late: str, tmp_path: Path
) -> None:
    directory = Moving(make_hdfs(tmp_path).absolute(), late)
    found = inspect(directory, pause=0)
    assert directory.listings == 2
    assert found.findings == []
    assert found.would_do.action == SparkAction.NEXT


def test_a_file_that_vanishes_between_listing_and_reading_is_no_damage(tmp_path: Path) -> None:
    class Purged(LocalDirectory):
        def read(self, path: str) -> bytes:
            if path in ("offsets/0", "commits/0", "state/0/0/1.delta"):
                (tmp_path / path).unlink(missing_ok=True)
            return super().read(path)

    make_hdfs(tmp_path)
    assert inspect(Purged(tmp_path), pause=0).findings == []


def test_a_source_log_that_is_compacted_and_purged_in_each_batch_is_no_damage(
    tmp_path: Path,
) -> None:
    class Compacting(LocalDirectory):
        """The query runs a batch after each listing, which removes the entry before."""

        batch = 3

        def listing(self) -> dict[str, FileEntry]:
            found = super().listing()
            self.batch += 1
            lines = [source_entry(n).split("\n")[1] for n in range(self.batch + 1)]
            write(tmp_path, f"sources/0/{self.batch}.compact", "\n".join(["v1", *lines]))
            write(tmp_path, f"offsets/{self.batch}", offsets(self.batch))
            write(tmp_path, f"commits/{self.batch}", 'v1\n{"nextBatchWatermarkMs":0}')
            for path in found:
                if path.startswith("sources/"):
                    (tmp_path / path).unlink()
            return found

    make_logs(tmp_path, 4)
    assert inspect(Compacting(tmp_path), pause=0).findings == []


def test_state_that_a_running_query_writes_while_it_is_listed_is_not_called_incomplete(
    tmp_path: Path,
) -> None:
    growing = GrowingDirectory(tmp_path).run_batches(5)

    class Overtaken(LocalDirectory):
        """In each listing the logs have a batch that came after the state was listed."""

        def listing(self) -> dict[str, FileEntry]:
            before = super().listing()
            growing.run_batch()
            now = super().listing()
            return {p: e for p, e in now.items() if not p.startswith("state/") or p in before}

    found = inspect(Overtaken(tmp_path), pause=0)
    assert found.findings == []
    assert [operator.is_complete for operator in found.operators] == [None]
    (tmp_path / f"state/0/1/{growing.next_batch}.delta").unlink()
    lost = inspect(LocalDirectory(tmp_path), pause=0)
    assert lost.is_damaged
    assert [operator.is_complete for operator in lost.operators] == [False]


def test_a_batch_that_comes_at_any_moment_of_a_listing_is_listed_with_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = GrowingDirectory(tmp_path).run_batches(5)
    look = os.scandir

    def scandir(folder: str) -> Any:
        growing.run_batch()
        return look(folder)

    monkeypatch.setattr("seamark.checkpoint_dir.places.local.os.scandir", scandir)
    found = inspect(LocalDirectory(tmp_path), pause=0)
    assert found.findings == []
    assert [operator.is_complete for operator in found.operators] == [True]


def test_nothing_is_found_in_a_directory_that_grows_and_is_purged_meanwhile(tmp_path: Path) -> None:
    growing = GrowingDirectory(tmp_path).run_batches(5)
    with growing.running():
        while growing.next_batch < 40:
            assert inspect(LocalDirectory(tmp_path)).findings == []


# what is no checkpoint


def test_another_directory_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    for make in (lambda: None, lambda: write(tmp_path, "some/file", b"x")):
        make()
        with pytest.raises(CheckpointNotFoundError, match="not a checkpoint directory of Spark"):
            looked_at(tmp_path)
    write(tmp_path, "manifests/1.json", b"{}")
    with pytest.raises(CheckpointNotFoundError, match="store of Seamark") as told:
        looked_at(tmp_path)
    assert "seamark list" in (told.value.hint or "")


# other places, and what was put there by a restore


def test_a_directory_on_s3_takes_one_listing_and_each_file_once(
    s3: ObjectServer, tmp_path: Path
) -> None:
    there = open_directory(s3.new_url("jobs/ck"), s3.storage_options)
    # the server notes when each file came, however slow the machine is
    files = [path for path in make_checksummed_twin(tmp_path).rglob("*") if path.is_file()]
    for file in sorted((path.relative_to(tmp_path) for path in files), key=order_of_writing):
        there.write(str(file), (tmp_path / file).read_bytes())
    counting = Counting(there)
    found = inspect(counting)
    assert found.findings == []  # Hadoop's hidden checksums mean nothing there
    assert counting.listings == 1
    assert max(counting.reads.values()) == 1
    there.remove(["state/0/1/8.delta"])
    assert codes(inspect(there, pause=0)) == ["batch-not-consumed"]
    empty = open_directory(s3.new_url("jobs/none"), s3.storage_options)
    with pytest.raises(CheckpointNotFoundError):
        inspect(empty)


def order_of_writing(path: Path) -> tuple[int, int]:
    """The batch that writes a file, and which of its files come first."""
    number = re.match(r"\.?(\d+)", path.name)
    if number is None:
        return -1, 0
    kind = ("offsets", "sources", "state", "commits").index(path.parts[0])
    return int(number[1]) - (path.parts[0] == "state"), kind


def make_checksummed_twin(root: Path) -> Path:
    make_hdfs(root)
    write(root, "offsets/.7.crc", b"left over from a local disk")
    return root


class Counting(Directory):
    """Counts what is asked of another directory."""

    def __init__(self, inner: Directory) -> None:
        self.inner, self.url, self.uri = inner, inner.url, inner.uri
        self.listings = 0
        self.reads: Counter[str] = Counter()

    def listing(self) -> dict[str, FileEntry]:
        self.listings += 1
        return self.inner.listing()

    def folders(self) -> Collection[str]:
        return self.inner.folders()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return self.inner.read(path)

    def write(self, path: str, data: bytes) -> None:
        raise AssertionError("an inspection writes nothing")

    def remove(self, paths: Iterable[str]) -> None:
        raise AssertionError("an inspection removes nothing")

    def sibling(self, suffix: str) -> Directory:
        return self.inner.sibling(suffix)


@pytest.mark.parametrize("batch", [3, 7])
def test_a_restored_directory_is_well(batch: int, tmp_path: Path) -> None:
    make_replaying(tmp_path / "ck")
    target = LocalDirectory(tmp_path / "new")
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(LocalDirectory(tmp_path / "ck"), store, batch=batch)
        restore_directory(store, taken.checkpoint_id, target)
    found = inspect(target, read_data=True)
    assert found.findings == []
    assert found.restorable == [batch]
