"""Little input never makes much work: an error or an answer, in bounded memory and few steps.

Nothing here looks at a clock: what would take long without a limit would not end at all, or is
counted.
"""

from __future__ import annotations

import gc
import io
import json
import os
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lz4.block
import msgspec
import pytest
import xxhash

from seamark import limits, limits_by_size, open_store
from seamark._common.json_documents import require_unambiguous, seal, unseal
from seamark._common.progress_bars import no_bar
from seamark._redaction import Redactor
from seamark.audit import postgres
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.capture import unread_entries
from seamark.capture.batches import batch_at
from seamark.capture.epoch_files import FILE_LIST
from seamark.capture.file_index import FileIndex
from seamark.capture.movers import store_packed
from seamark.checkpoint_dir import state_files
from seamark.checkpoint_dir.closures import has_one_partition, needs_of
from seamark.checkpoint_dir.file_logs.compactions import is_accepted, laid_out, restart_interval
from seamark.checkpoint_dir.file_logs.sink_log import rewound
from seamark.checkpoint_dir.file_logs.source_log import entries_up_to, log_problems
from seamark.checkpoint_dir.formats import hdfs_state
from seamark.checkpoint_dir.formats.hdfs_state import lineage_of, read_changes, same_state
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.checkpoint_dir.formats.rocksdb_zip import zip_problems
from seamark.checkpoint_dir.operators import UNKNOWN, StatefulOperator
from seamark.checkpoint_dir.places.directory import FileEntry, Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.schema_paths import with_root
from seamark.checkpoint_dir.state_files import MissingVersion, StateFile, needed_ssts
from seamark.cli.sources import _parts as position_parts
from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.contents import ReadState
from seamark.native.inspect.replaced_files import StrangeTime, copy_findings
from seamark.native.inspect.state import State, Store
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.pipeline.recovery.rollback import roll_back
from seamark.pipeline.recovery.sink_recovery import most_ahead
from seamark.progress.configuration import explain_change
from seamark.reports.checkpoint_document import chain_of
from seamark.reports.difference import _flat as flat_members
from seamark.reports.named_checkpoints import load
from seamark.reports.state_rows import flat_row
from seamark.reports.verification import check_named
from seamark.spark.batch_log import parse_offsets, readable_offset
from seamark.state import CheckpointManifestV2, StateStore
from seamark.state.pack import PackBuilder, decode_pack, unpack_all
from seamark.store import CheckpointStore, validation
from seamark.store.copy.run import copy_checkpoints
from seamark.store.index_parts import INDEX, LOG
from seamark.store.layout import ObjectLayout
from seamark.store.owner import (
    Owner,
    Pin,
    Standing,
    decode_owner,
    encode_owner,
    standing,
    with_fence,
)
from seamark.store.references import STATE_PREFIX
from seamark.store.retention import Candidate, Retention, plan_retention
from tests.checkpoint_dir.support.directories import make_copy, source_entry
from tests.native.support.inspected import (
    delta,
    describe,
    looked_at,
    make_logs,
    make_rocksdb,
    write,
)
from tests.support.counted_blobs import CountedBlobs

_MEMORY = 200 * limits.MIB
_FAR = 10**17


@contextmanager
def bounded_memory() -> Iterator[None]:
    """The kernel's own account: what was the most memory that was in use meanwhile?"""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _most_used()
    yield
    assert _most_used() - before < _MEMORY


def _most_used() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)


# large files


@pytest.mark.slow
def test_a_file_that_is_one_large_hole_is_refused_and_not_read(tmp_path: Path) -> None:
    make_copy(tmp_path, 2)
    for path in ("offsets/1", "state/0/0/2.delta"):
        with open(tmp_path / path, "r+b") as file:
            file.truncate(1 << 40)
        with bounded_memory(), pytest.raises(RefusedError, match="is the most"):
            LocalDirectory(tmp_path).read(path)
    with bounded_memory(), pytest.raises(RefusedError):
        batch_at(Tree.of(LocalDirectory(tmp_path)), 1)
    with bounded_memory():
        assert looked_at(tmp_path).findings


def _hollow(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(1 << 40)


def test_a_hole_is_not_streamed_from_a_directory_into_a_store(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 2)
    _hollow(tmp_path / "ck" / "state" / "0" / "0" / "2.delta")
    directory = LocalDirectory(tmp_path / "ck")
    with open_store(tmp_path / "store") as store, pytest.raises(RefusedError, match="a hole"):
        take_snapshot(directory, store)
    with pytest.raises(RefusedError, match="a hole"):
        next(iter(directory.stream("state/0/0/2.delta")))
    assert dict(directory.copy.digests(["state/0/0/2.delta"])) == {"state/0/0/2.delta": None}


def test_a_hole_in_a_store_is_damage_and_is_not_streamed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "1").touch()
    _hollow(tmp_path / "shared" / "1")
    stream = FilesystemBlobs(str(tmp_path)).stream("shared/1", 1 << 20)
    assert stream is not None
    with pytest.raises(DamageError, match="most are a hole"):
        next(iter(stream))


# compressed state files


def lz4_file(*parts: bytes) -> bytes:
    file = b""
    for part in parts:
        body = lz4.block.compress(part, store_size=False)
        checksum = xxhash.xxh32_intdigest(part, 0x9747B28C) & 0x0FFFFFFF
        file += b"LZ4Block\x2f" + struct.pack("<III", len(body), len(part), checksum) + body
    return file + b"LZ4Block\x1f" + bytes(12)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 8])
def test_a_state_file_of_zeros_is_not_unpacked_without_end(blocks: int) -> None:
    bomb = lz4_file(*[bytes(1 << 25)] * blocks)
    assert len(bomb) < 2 * limits.MIB
    with bounded_memory(), pytest.raises(NotDecodable, match="more than"):
        read_changes(bomb)


def test_a_large_state_file_that_compresses_well_is_still_read() -> None:
    row = struct.pack(">i", 16) + bytes(16) + struct.pack(">i", 80) + bytes(range(80))
    plain = row * 50_000 + struct.pack(">i", -1)
    assert len(read_changes(lz4_file(plain))) == 50_000


def _row(key: int, value: bytes) -> bytes:
    return struct.pack(">iqi", 8, key, len(value)) + value


_END = struct.pack(">i", -1)


def test_a_snapshot_and_its_changes_are_not_all_unpacked_to_be_compared() -> None:
    value = bytes(15 * limits.MIB)
    deltas = [lz4_file(_row(number, value) + _END) for number in range(20)]
    with bounded_memory(), pytest.raises(NotDecodable, match="not compared"):
        same_state(lz4_file(_END), deltas)
    assert same_state(lz4_file(_row(1, value) + _END), deltas[1:2])


@pytest.mark.slow
@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("read_data", [False, True])
def test_small_files_of_very_many_records_are_not_all_read(
    tmp_path: Path, is_torn: bool, read_data: bool
) -> None:
    make_copy(tmp_path, 3)
    file = lz4_file(bytes(8) * 400_000 + (b"" if is_torn else _END))
    for number in range(30):
        folder = tmp_path / f"state/0/{number}"
        folder.mkdir(exist_ok=True)
        for version in (1, 2, 3):
            (folder / f"{version}.delta").write_bytes(file)
    for batch in range(3):
        offsets = tmp_path / f"offsets/{batch}"
        offsets.write_text(offsets.read_text().replace('"2"', '"30"'))
    with bounded_memory():
        assert looked_at(tmp_path, read_data=read_data).unread >= 85


def test_the_lineage_of_a_changelog_is_read_however_large_the_rest_is() -> None:
    told = b'[{"version":3,"checkpointUniqueId":"a"}]'
    head = b"\x00\x02v4" + struct.pack(">H", len(told)) + told
    with bounded_memory():
        assert lineage_of(lz4_file(head, *[bytes(1 << 25)] * 4)) == {3: "a"}


# snapshots of RocksDB


def _zip(ssts: int = 0, members: int = 0) -> bytes:
    named = [{"dfsSstFileName": f"{n}.sst", "sizeBytes": 1} for n in range(ssts)]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": named}))
        for number in range(members):
            archive.writestr(str(number), "")
    return out.getvalue()


def test_a_snapshot_with_very_many_files_inside_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = _zip(members=limits.MOST_ZIP_MEMBERS + 1)
    monkeypatch.delattr(zipfile.ZipFile, "_RealGetContents")  # what takes so long
    with pytest.raises(DamageError, match="more than 10000 files"):
        needed_ssts(bomb)
    assert "more than 10000 files" in zip_problems(bomb)[0]


def test_a_snapshot_that_names_very_many_files_gives_a_few_findings(tmp_path: Path) -> None:
    make_rocksdb(tmp_path)
    newest = max(tmp_path.glob("state/0/0/*.zip"))
    newest.write_bytes(_zip(ssts=20_000))
    with bounded_memory():
        found = looked_at(tmp_path)
    missing = [each for each in found.findings if each.code == "sst-missing"]
    assert len(missing) == limits.MOST_MISSING_NAMED + 1
    assert "20000 files" in missing[-1].message


@pytest.mark.parametrize("size", [3_800, 250_000])
def test_small_snapshots_of_very_many_stores_cost_what_is_stored_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    stores, read = 100, 0
    make_logs(tmp_path, 1, partitions=stores)
    describe(tmp_path, 0, stores)
    for number in range(stores):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            others = ",".join(["{}"] * (size // 3))
            archive.writestr("metadata", f'v1\n{{"sstFiles":[],"at":{number},"others":[{others}]}}')
        write(tmp_path, f"state/0/{number}/1.zip", packed.getvalue())

    def counted(text: str) -> None:
        nonlocal read
        read += len(text)
        require_unambiguous(text)

    monkeypatch.setattr(state_files, "require_unambiguous", counted)
    found = looked_at(tmp_path)
    assert read <= stores * limits.ZIP_METADATA_FLOOR  # each once, by whoever asks
    if size < limits.ZIP_METADATA_FLOOR:
        assert (found.findings, read > 0) == ([], True)
    else:
        assert {each.code for each in found.findings} == {"zip-unreadable"}


def test_a_large_snapshot_is_gone_through_once_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rocksdb(tmp_path)
    newest = max(tmp_path.glob("state/0/0/*.zip"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        pad = "x" * limits.LARGEST_KEPT_ZIP
        archive.writestr("metadata", f'v1\n{{"sstFiles":[],"pad":"{pad}"}}')
    newest.write_bytes(packed.getvalue())
    asked: list[int] = []
    monkeypatch.setattr(state_files, "require_unambiguous", lambda text: asked.append(len(text)))
    assert looked_at(tmp_path).findings == []
    assert len(asked) == 1


def test_a_version_far_away_is_no_reason_to_count_to_it(tmp_path: Path) -> None:
    make_rocksdb(tmp_path)
    copied = min(tmp_path.glob("state/0/0/*.zip")).read_bytes()
    (tmp_path / f"state/0/0/{_FAR}.zip").write_bytes(copied)
    assert looked_at(tmp_path, read_data=True).findings


def test_versions_that_many_stores_lack_are_told_once_for_each_hole(tmp_path: Path) -> None:
    make_logs(tmp_path, 100, partitions=20)
    for partition in range(20):
        for name in ("1.delta", "3.delta", "100.snapshot"):
            write(tmp_path, f"state/0/{partition}/{name}", delta({}))
    found = looked_at(tmp_path)
    missing = [each for each in found.findings if each.code == "state-missing"]
    assert len(missing) == 2 * 20
    assert "version 2 is not there" in missing[0].message
    assert "versions 4 to 99 are not there" in missing[1].message


def test_folders_far_below_each_other_are_not_all_remembered(tmp_path: Path) -> None:
    files = {
        f"{number}/" + "a/" * 500 + "x": FileEntry(1, 1.0, "")
        for number in range(2 * limits.FOLDERS_FLOOR // 500)
    }
    with bounded_memory(), pytest.raises(RefusedError, match="far more than files"):
        Tree(LocalDirectory(tmp_path), files)
    few = {f"state/0/{number}/1.delta": FileEntry(1, 1.0, "") for number in range(1000)}
    assert len(Tree(LocalDirectory(tmp_path), few).names("state/0")) == 1000


def test_an_offset_log_has_so_many_sources_and_no_more() -> None:
    text = "v1\n{}" + "\n-" * limits.MOST_SOURCES
    assert len(parse_offsets(text).lines) == limits.MOST_SOURCES
    with pytest.raises(DamageError, match="10001 sources, and 10000 is the most"):
        parse_offsets(f"{text}\n-")


@pytest.mark.slow
def test_very_many_equal_files_are_compared_in_one_pass(tmp_path: Path) -> None:
    operator = StatefulOperator(0, "stateStoreSave", ["default"], 1)
    folder = next(operator.folders())
    files = {version: [StateFile(version, None, "delta")] for version in range(1, 50_001)}
    store = Store(operator, folder, files, {}, None)
    paths = [store.path(file) for (file,) in files.values()]
    seen = CachedListing(LocalDirectory(tmp_path), dict.fromkeys(paths, FileEntry(9, 0.0, "")))
    learned = ReadState(digests=dict.fromkeys(paths, b"the same"))
    state = State([store], {}, [], is_understood=True)
    assert list(copy_findings(seen, state, learned, {})) == []
    strange = dict.fromkeys(paths, StrangeTime.EARLY)
    assert len(list(copy_findings(seen, state, learned, strange))) == len(paths)


# logs


def _at_entry(number: int, name: str = "0") -> str:
    return f'v2\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{name}:{{"logOffset":{number}}}'


@pytest.mark.parametrize("number", [10**8, _FAR])
def test_an_offset_far_beyond_a_sources_log_is_told_at_once(tmp_path: Path, number: int) -> None:
    copy = make_copy(tmp_path, 3)
    copy.write("offsets/2", _at_entry(number).encode())
    told = f"stands at entry {number} of a source's log, which is not there"
    with bounded_memory(), pytest.raises(MissingVersion, match=told):
        batch_at(Tree.of(LocalDirectory(tmp_path)), 2)


@pytest.mark.parametrize("number", [10**8, _FAR])
def test_a_compaction_far_away_that_holds_one_line_is_told_at_once(number: int) -> None:
    names = ["0", "1", "7.compact", f"{number}.compact", f"{number + 1}"]
    with bounded_memory():
        with pytest.raises(DamageError):
            entries_up_to(names, number - 1, lambda name: source_entry(0))
        with pytest.raises(DamageError):
            entries_up_to(names, number, lambda name: source_entry(0))
        assert log_problems(names, lambda name: source_entry(0))
        assert log_problems(["0", str(number)], lambda name: source_entry(0))


def test_the_log_of_a_sink_with_an_entry_far_away_is_refused_at_once() -> None:
    line = 'v1\n{"path":"a","size":1,"action":"add"}'
    for names in (["0", "1", str(_FAR)], ["0", "1", f"{_FAR}.compact"]):
        with bounded_memory(), pytest.raises(RefusedError, match="entry 2 is gone"):
            rewound(names, lambda name: line, _FAR - 1)


@pytest.mark.parametrize("last", [10**9 + 7, _FAR + 3])
def test_the_interval_of_a_log_is_worked_out_without_counting_to_it(last: int) -> None:
    assert restart_interval([last - 1]) > 0
    assert is_accepted([last - 1], last) in (True, False)
    assert len(laid_out(last, 10**9).plain) > 0


@pytest.mark.parametrize("setting", [2, 3, 7, 10, 50])
def test_the_interval_of_a_log_is_the_one_that_counting_finds(setting: int) -> None:
    for count in range(1, 400):
        if count <= setting or setting >= count // 2:
            counted = count
        else:
            counted = next((i for i in range(setting, count // 2 + 1) if count % i == 0), count)
        assert restart_interval([count - 1], setting) == counted


# texts


@pytest.mark.parametrize("piece", ["a.a.", ":/:", "account_key", "://", "s3:", "secret ", "@"])
def test_a_text_of_any_length_is_redacted_in_one_pass(piece: str) -> None:
    text = piece * 100_000
    assert Redactor({})(text) == text


# metadata of an operator


@pytest.mark.parametrize(
    ("pattern", "start", "end"),
    [
        (unread_entries._LINE, '{"path":"', '","timestamp":1,"batchId":3}'),
        (postgres._NAMES, '"', '"."rows"'),
    ],
)
def test_a_text_of_any_length_is_matched_without_memory_for_each_character(
    pattern: re.Pattern[str], start: str, end: str
) -> None:
    text = f"{start}{'a' * (4 << 20)}{end}"
    with bounded_memory():
        assert pattern.fullmatch(text)


def test_schema_paths_are_found_in_one_pass() -> None:
    note = "state/1/_metadata/v2/0"
    repeated = "/state/1/_stateSchema/" * 40_000
    with pytest.raises(DamageError, match="cannot be read"):
        with_root(note, f'v2\n"{repeated}'.encode(), "file:/new")
    with pytest.raises(DamageError, match="no file below state/1/_stateSchema/"):
        with_root(note, f'v2\n{{"path":"{repeated}"}}'.encode(), "file:/new")
    path = '"file:/old/state/1/_stateSchema/default/0_a",'
    many = 'v2\n{"paths":[%s""]}' % (path * 40_000)
    moved = with_root(note, many.encode(), "s3a://b").decode()
    assert moved == many.replace("file:/old", "s3a://b")


# partitions


def _noted(root: Path, **fields: object) -> None:
    file = root / "state/0/_metadata/metadata"
    version, _, text = file.read_text().partition("\n")
    told = json.loads(text)
    told["stateStoreInfo"] = [told["stateStoreInfo"][0] | fields]
    file.write_text(f"{version}\n{json.dumps(told)}")


@pytest.mark.parametrize("where", ["offsets", "description"])
def test_partitions_that_are_only_noted_are_not_counted_up_to(tmp_path: Path, where: str) -> None:
    copy = make_copy(tmp_path, 3)
    for batch in range(3) if where == "offsets" else ():
        text = copy.read_text(f"offsets/{batch}") or ""
        copy.write(f"offsets/{batch}", text.replace('"2"', '"1000000"').encode())
    if where == "description":
        _noted(tmp_path, numPartitions=1_000_000)
        for batch in range(3):
            copy.write(f"offsets/{batch}", b'v1\n{"conf":{}}\n{"logOffset":%d}' % batch)
    tree = Tree.of(LocalDirectory(tmp_path))
    with bounded_memory():
        with pytest.raises(MissingVersion, match="partition 2"):
            batch_at(tree, 2)
        assert len(list(needs_of(tree, 2))) <= limits.MOST_ABSENT_STORES + 2
        looked_at(tmp_path)


def test_an_operator_with_very_many_stores_is_damage(tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    file = tmp_path / "state/0/_metadata/metadata"
    told = json.loads(file.read_text().partition("\n")[2])
    told["stateStoreInfo"] *= 10_000
    file.write_text(f"v1\n{json.dumps(told)}")
    with pytest.raises(DamageError, match="10000 stores"):
        batch_at(Tree.of(LocalDirectory(tmp_path)), 2)


@pytest.mark.parametrize("name", ["a" * 1_000_000, [["a", 1]] * 100_000, {"a": 1}, None, 1])
@pytest.mark.parametrize("what", ["operator", "store"])
def test_a_name_that_no_folder_has_is_damage_and_is_not_repeated(
    tmp_path: Path, what: str, name: object
) -> None:
    make_copy(tmp_path, 3)
    file = tmp_path / "state/0/_metadata/metadata"
    told = json.loads(file.read_text().partition("\n")[2])
    if what == "operator":
        told["operatorInfo"]["operatorName"] = name
    else:
        told["stateStoreInfo"][0]["storeName"] = name
    file.write_text(f"v1\n{json.dumps(told)}")
    with pytest.raises(DamageError, match=f"the {what}'s name") as caught:
        batch_at(Tree.of(LocalDirectory(tmp_path)), 2)
    assert len(str(caught.value)) < limits.LONGEST_REASON


def test_more_operators_than_a_query_has_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_OPERATORS", 5)
    make_copy(tmp_path, 3)
    for number in range(1, 6):
        (tmp_path / f"state/{number}").mkdir()
    for look in (
        lambda: batch_at(Tree.of(LocalDirectory(tmp_path)), 2),
        lambda: looked_at(tmp_path),
    ):
        with pytest.raises(DamageError, match="6 stateful operators"):
            look()


def test_stores_without_a_folder_are_counted_over_all_operators(tmp_path: Path) -> None:
    copy = make_copy(tmp_path, 3)
    for batch in range(3):
        text = copy.read_text(f"offsets/{batch}") or ""
        copy.write(f"offsets/{batch}", text.replace('"2"', '"1000000"').encode())
    for number in range(1, 300):
        (tmp_path / f"state/{number}").mkdir()
    tree = Tree.of(LocalDirectory(tmp_path))
    with bounded_memory():
        assert len(list(needs_of(tree, 2))) <= limits.MOST_ABSENT_STORES + 2
        looked_at(tmp_path)


def test_the_logs_of_many_sources_are_each_listed_a_few_times(tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    for number in range(1, 100):
        folder = tmp_path / f"sources/{number}"
        folder.mkdir()
        (folder / "0").write_text(source_entry(0))
    directory = LocalDirectory(tmp_path)
    tree = _CountingTree(directory, directory.listing())
    batch_at(tree, 2)
    assert tree.listed < 10 * 100


class _CountingTree(Tree):
    listed = 0

    def names(self, folder: str) -> Collection[str]:
        self.listed += folder.startswith("sources/")
        return super().names(folder)


# packs and partitioned state


def test_a_pack_never_unpacks_to_very_much_more_than_it_takes() -> None:
    builder = PackBuilder()
    for number in range(5):
        builder.add(str(number), bytes(16 * limits.MIB))
    honest = b"".join(builder.finish())
    assert [len(data) for _, data in decode_pack(honest)] == [16 * limits.MIB] * 5
    assert len(honest) > 5 * 16 * limits.MIB / (2 * limits.PACK_RATIO)


@pytest.mark.parametrize("entries", [1, 8])
def test_a_pack_that_claims_very_much_more_is_damage(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(limits_by_size, "shrinks_too_much", lambda plain, stored: False)
        patch.setattr(limits_by_size, "leaves_no_room", lambda plain, stored: False)
        builder = PackBuilder()
        for number in range(entries):
            builder.add(str(number), bytes(256 * limits.MIB // entries))
        bomb = b"".join(builder.finish())
    assert len(bomb) < 2 * limits.MIB
    with bounded_memory(), pytest.raises(DamageError, match="claims"):
        decode_pack(bomb)


def test_partitions_that_share_one_block_are_damage(tmp_path: Path) -> None:
    store = StateStore(FilesystemBlobs(str(tmp_path)))
    with store.begin(1) as writer:
        writer.put("agg", 0, b"the only state")
        written = writer.commit().checkpoint_id
    file = tmp_path / f"checkpoints/{written}/manifest.json"
    manifest = CheckpointManifestV2.from_json(unseal(file.read_bytes()))
    (entry,) = manifest.operators["agg"].partitions
    shared = [msgspec.structs.replace(entry, partition_id=n) for n in range(16)]
    operators = {"agg": msgspec.structs.replace(manifest.operators["agg"], partitions=shared)}
    file.write_bytes(seal(manifest.replace(operators=operators).to_json()))
    with pytest.raises(DamageError, match="named twice"):
        list(store.restore_all(written))
    assert not store.verify(written).valid


def test_a_restore_reads_only_so_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 8 * limits.MIB
    store = StateStore(FilesystemBlobs(str(tmp_path)), parallelism=16)
    with store.begin(1) as writer:
        for partition in range(40):
            writer.put("agg", partition, bytes([partition]) * size)
        written = writer.commit().checkpoint_id
    tracemalloc.start()
    try:
        found = [(n, state.snapshot[:1]) for _, n, state in store.restore_all(written)]
        assert tracemalloc.get_traced_memory()[1] < 20 * size, "half of all states"
    finally:
        tracemalloc.stop()
    assert found == [(n, bytes([n])) for n in range(40)]


# owner.json


def test_an_id_is_looked_up_in_an_owner_of_any_size_without_going_through_it() -> None:
    many = tuple(range(2, 2_000_000, 2))
    owner = Owner(prune_boundary=2_000_000, kept_below=many, voided=tuple(many[:500_000]))
    assert standing(owner, 3) is Standing.PRUNED
    for checkpoint_id in range(1_900_000, 1_950_000, 2):
        assert standing(owner, checkpoint_id) is Standing.CURRENT
        assert standing(owner, checkpoint_id - 1_800_000) is Standing.VOID
    fences = tuple((i, i) for i in range(1, 500_000))
    assert with_fence(Owner(prune_boundary=10**6, fences=fences), 10**7, 10**6).fences == (
        (499_999, 499_999),
        (10**7, 10**6),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"tombstones": tuple(range(limits.MOST_TOMBSTONES + 1))},
        {"superseded": ((1, 1),) * (limits.MOST_SUPERSEDED_RANGES + 1)},
        {"pins": {str(number): Pin(1, 1) for number in range(limits.MOST_PINS + 1)}},
        {"fences": ((1, 1),) * (limits.MOST_OWNER_IDS + 1)},
        {"voided": (1,) * (limits.MOST_OWNER_IDS + 1)},
        {"kept_below": (1,) * (limits.MOST_OWNER_IDS + 1)},
    ],
    ids=["tombstones", "superseded", "pins", "fences", "voided", "kept"],
)
def test_an_owner_that_names_very_many_ids_is_damage(changes: dict[str, Any]) -> None:
    with pytest.raises(DamageError, match=r"more than 100?000"):
        decode_owner(encode_owner(msgspec.structs.replace(Owner(), **changes)))


@pytest.mark.parametrize("number", [-1, -(10**400), 10**400], ids=["-1", "-1e400", "1e400"])
@pytest.mark.parametrize(
    "changes",
    [
        lambda n: {"generation": n},
        lambda n: {"claimed_at_ms": n},
        lambda n: {"next_id": n},
        lambda n: {"prune_boundary": n},
        lambda n: {"kept_below": (1, n)},
        lambda n: {"superseded": ((1, n),)},
        lambda n: {"fences": ((n, 1),)},
        lambda n: {"fences": ((1, n),)},
        lambda n: {"tombstones": (n,)},
        lambda n: {"voided": (n,)},
        lambda n: {"pins": {"a": Pin(n, 1)}},
        lambda n: {"pins": {"a": Pin(1, n)}},
        lambda n: {"pins": {"a": Pin(1, 1, n)}},
    ],
)
def test_a_number_that_no_owner_can_have_is_damage(changes: Any, number: int) -> None:
    # msgspec cannot write such a number
    fields = {**msgspec.to_builtins(Owner()), **changes(number)}
    fields = json.loads(json.dumps(fields, default=msgspec.to_builtins))
    with pytest.raises(DamageError, match="a number that cannot be"):
        decode_owner(seal(json.dumps(fields).encode()))


@pytest.mark.parametrize("timeline", ["../../outside", "a" * 100_000, "t\n", "A" * 32])
def test_a_timeline_that_no_store_begins_is_damage_and_can_be_mended(
    tmp_path: Path, timeline: str
) -> None:
    with open_store(tmp_path) as store:
        store.claim()
        store.save(CheckpointManifest.new(1, epoch=1))
        forged = msgspec.structs.replace(store.owner(), timeline=timeline)
    (tmp_path / "owner.json").write_bytes(encode_owner(forged))
    manifest = next(tmp_path.rglob("manifest.json"))
    members = {**json.loads(unseal(manifest.read_bytes())), "timeline": timeline}
    manifest.write_bytes(seal(json.dumps(members, separators=(",", ":")).encode()))
    with open_store(tmp_path) as store:
        with pytest.raises(DamageError, match="its timeline is not 32 hexadecimal") as caught:
            store.claim()
        assert len(str(caught.value)) < 600
        store.rebuild_owner()
        assert len(store.claim().timeline) == 32


def test_a_store_that_claims_to_be_claimed_very_often_is_not_claimed_once_more(
    tmp_path: Path,
) -> None:
    most = msgspec.structs.replace(Owner(), generation=limits.LARGEST_GENERATION)
    (tmp_path / "owner.json").write_bytes(encode_owner(most))
    with open_store(tmp_path) as store, pytest.raises(RefusedError, match="cannot be a generation"):
        store.claim()
    (tmp_path / "owner.json").write_bytes(
        encode_owner(msgspec.structs.replace(most, generation=limits.LARGEST_GENERATION + 1))
    )
    with open_store(tmp_path) as store, pytest.raises(DamageError, match="cannot be a generation"):
        store.claim()


def test_a_checkpoint_that_many_build_on_is_read_once_by_a_recovery() -> None:
    blobs = CountedBlobs()
    store = CheckpointStore(blobs, ObjectLayout())
    links = 60
    store.save_with_state(CheckpointManifest.new(1, epoch=1), [b"state"])
    for i in range(2, links + 1):
        store.save(CheckpointManifest.new(i, epoch=i, is_incremental=True, parent_id=i - 1))
    blobs.delete(["checkpoints/state-000001.bin"])
    blobs.forget()
    assert CheckpointStore(blobs, ObjectLayout()).recover_latest_validated().chosen_id is None
    assert blobs.reads < 3 * links


@pytest.mark.parametrize("known", [True, False], ids=["recovery", "one"])
def test_a_long_chain_without_its_root_is_followed_once(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("memory://")
    links = 200
    for i in range(1, links + 1):
        fields = {"is_incremental": i > 1, "parent_id": i - 1 or None}
        store.save(CheckpointManifest.new(i, epoch=i, **fields))
    store.backend.delete([store._parts.layout.manifest(1)])
    steps = 0

    def counted(owner: Owner, checkpoint_id: int) -> Standing:
        nonlocal steps
        steps += 1
        return standing(owner, checkpoint_id)

    monkeypatch.setattr(validation, "standing", counted)
    if known:
        report = store.recover_latest_validated()
        assert report.chosen_id is None
        assert {why for _, why in report.skipped[:-2]} == {
            "parent 1 of checkpoint 2: manifest not found for checkpoint 1"
        }
    else:
        assert not store.validate_checkpoint(links).valid
    assert steps < 2 * links


def test_a_chain_of_parents_may_have_any_length() -> None:
    """A rollback adds a link to the longest one that a pipeline writes, which has 1000."""
    links = 1_100
    store, target = open_store("memory://"), open_store("memory://")
    for i in range(1, links + 1):
        fields = {"is_incremental": i > 1, "parent_id": i - 1 or None}
        store.save(CheckpointManifest.new(i, epoch=i, **fields))
    copied = copy_checkpoints(store, target)
    assert {each.outcome for each in copied} == {"copied"}
    again = roll_back(target, links, pipeline=None).checkpoint_id
    for each, newest in ((store, links), (target, again)):
        assert each.recover_latest_validated().chosen_id == newest
        assert each.validate_checkpoint(newest).valid
        chain, problem = chain_of(each, load(each, newest))
        assert (len(chain), problem) == (newest, None)
        checks = check_named(each, str(newest), 1.0, 0, no_bar)
        assert [check.status for check in checks] == ["ok"] * newest


def test_packs_are_stored_no_larger_than_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LARGEST_PACK", 20_000)
    store = open_store("memory://")
    contents = {f"state/0/0/{n}.delta": os.urandom(1000) for n in range(1, 51)}
    stored = store_packed(store.shared_objects, contents)
    packs = {file.shared for file in stored.values() if file.shared is not None}
    assert len(packs) == 5
    unpacked = [each for pack in packs for each in unpack_all(store.shared_objects.read_pack(pack))]
    assert {entry.key: data for entry, data in unpacked} == contents
    with pytest.raises(DamageError, match="is the most for a pack"):
        store.shared_objects.read_pack(packs.pop()._replace(size=20_001))


def test_a_copy_reads_each_object_of_a_long_chain_of_state_a_few_times() -> None:
    links = 40
    source, there = CheckpointStore(MemoryBlobs(), ObjectLayout()), CountedBlobs()
    target = CheckpointStore(there, ObjectLayout())
    states = StateStore(source.backend, prefix=STATE_PREFIX, longest_chain=1000, pack_below=0)
    parent = None
    for number in range(1, links + 1):
        with states.begin(number, parent=parent) as writer:
            writer.put("agg", number, b"state")
            parent = writer.commit().checkpoint_id
        named = CheckpointManifest.new(number, epoch=number, state_checkpoint=f"state/{parent}")
        source.save(named)
    copied = copy_checkpoints(source, target)
    assert [each.outcome for each in copied] == ["copied"] * links
    verified = links * (links + 1) // 2  # reading back, each checkpoint by itself
    assert there.streams <= verified + 3 * links
    assert target.recover_latest_validated().chosen_id == links


def test_a_long_chain_of_parents_is_followed_once_by_retention() -> None:
    chain = [
        Candidate(checkpoint_id=i, valid=True, parent_id=i - 1 or None) for i in range(1, 100_001)
    ]
    verdicts = plan_retention(chain, Retention(last=50_000), pins={}, now_ms=0)
    assert all(each.keep for each in verdicts)
    assert verdicts[-1].reason == "needed by 100000"


_LONG_NAME = "n" * 500_000
_MANY_MEMBERS = {str(number): number for number in range(50_000)}


@pytest.mark.slow
def test_a_long_name_is_not_repeated_before_each_of_its_members() -> None:
    nested = {_LONG_NAME: _MANY_MEMBERS}
    other = {_LONG_NAME: {name: value + 1 for name, value in _MANY_MEMBERS.items()}}
    with bounded_memory():
        assert list(readable_offset(json.dumps(nested))) == [_LONG_NAME]
        assert len(list(flat_members(nested))) == 1
        assert len(list(position_parts({"position": nested, "position_encoding": "json"}))) == 1
        assert flat_row(nested) == nested
        for before, after in ((nested, other), ({"sinks": nested}, {"sinks": other})):
            changes = explain_change(before, after)
            assert len(changes) == len(_MANY_MEMBERS)
            assert max(map(len, changes)) < 3 * limits.LONGEST_PREFIX


def test_a_sink_may_show_so_many_epochs_beyond_the_newest_checkpoint_and_no_more() -> None:
    farthest = 7 + limits.MOST_EPOCHS_AHEAD
    assert most_ahead({"bars": 9, "quotes": farthest}, 7) == farthest
    assert most_ahead({}, 7) == 0
    with pytest.raises(DamageError, match=f"'bars' shows epoch {farthest + 1}, .* of epoch 8"):
        most_ahead({"bars": farthest + 1, "quotes": 9}, 7)


def test_the_changes_of_an_operator_without_a_description_are_not_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one key is looked for, and it takes no more than two records to see that there are
    more."""
    copy = make_copy(tmp_path, 3, partitions=1)
    record = struct.pack(">ii", 0, 0)
    data = lz4_file(record * 400_000 + struct.pack(">i", -1))
    for version in (1, 2, 3):
        copy.write(f"state/0/0/{version}.delta", data)
    made = 0
    change = hdfs_state.StateChange

    def counted(*parts: Any) -> Any:
        nonlocal made
        made += 1
        return change(*parts)

    monkeypatch.setattr(hdfs_state, "StateChange", counted)
    operator = StatefulOperator(0, UNKNOWN, ["default"], 200)
    assert not has_one_partition(Tree.of(LocalDirectory(tmp_path)), operator)
    assert made <= 3


def test_the_changes_of_an_operator_without_a_description_are_not_all_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has one record, and all of them the same key; what they hold is nearly all zeros."""
    copy = make_copy(tmp_path, 30, partitions=1)
    data = lz4_file(_row(7, bytes(8 * limits.MIB)) + _END)
    for version in range(1, 31):
        copy.write(f"state/0/0/{version}.delta", data)
    unpacked = 0
    decompress = lz4.block.decompress

    def counted(payload: bytes, uncompressed_size: int) -> Any:
        nonlocal unpacked
        unpacked += uncompressed_size
        return decompress(payload, uncompressed_size=uncompressed_size)

    monkeypatch.setattr(lz4.block, "decompress", counted)
    operator = StatefulOperator(0, UNKNOWN, ["default"], 200)
    assert not has_one_partition(Tree.of(LocalDirectory(tmp_path)), operator)
    assert 0 < unpacked <= limits_by_size.largest_unpacked(30 * len(data))


@pytest.mark.parametrize("unit", ["{}", '{"":' * 200 + "{}" + "}" * 200])
def test_the_metadata_of_a_rocksdb_snapshot_costs_what_is_stored_of_it(unit: str) -> None:
    many = ",".join([unit] * ((4 << 20) // len(unit)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", f'v1\n{{"sstFiles":[],"others":[{many}]}}')
    with bounded_memory(), pytest.raises(DamageError, match="more than any snapshot"):
        needed_ssts(out.getvalue())


def test_a_list_of_files_that_is_small_when_packed_is_damage(tmp_path: Path) -> None:
    names = ",".join(['"ab"'] * 1_000_000)
    builder = PackBuilder()
    for path, text in {
        "metadata": '{"id":"6f1c0000-0000-4000-8000-000000000000"}',
        "offsets/0": "v1\n{}\n0",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        FILE_LIST: f'{{"taken":{{}},"needed":[{names}]}}',
    }.items():
        builder.add(path, text.encode())
    builder.add(INDEX, FileIndex().part({}, ()))
    pack = OperatorCheckpoint.inline(b"".join(builder.finish()))
    with open_store(tmp_path) as store:
        store.save(CheckpointManifest.new(1, epoch=1, operator_states={LOG: pack}, batch=0))
        with bounded_memory(), pytest.raises(DamageError, match="list of a snapshot's files"):
            restore_directory(store, 1, LocalDirectory(tmp_path / "new"))
