"""Bad bytes in RocksDB's files are told; nothing that was committed is lost without a word."""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections.abc import Iterable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import rocksdict

from seamark import limits, limits_by_size
from seamark.errors import DamageError, SeamarkError
from seamark.progress import MAX_POSITION_BYTES, SourceCheckpointStore, open_progress
from seamark.progress.rocksdb import ledger
from tests.progress.support.children import running, whole_number, write_number

SESSIONS = 8


@pytest.fixture
def chance() -> random.Random:
    return random.Random(int(os.environ["SEAMARK_SEED"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "progress"


@pytest.fixture
def killed(folder: Path) -> Path:
    """A store whose writer was killed after a few sessions, all of them in the log."""
    with running(_some_sessions, f"rocksdb://{folder}") as child:
        assert child.hear_all()[-1] == SESSIONS
    return folder


def _some_sessions(reports: Connection, url: str) -> None:
    store = open_progress(url)
    for number in range(1, SESSIONS + 1):
        write_number(store, number)
        reports.send(number)
    os.kill(os.getpid(), 9)


def opened(folder: Path) -> SourceCheckpointStore:
    return open_progress(f"rocksdb://{folder}")


def log_of(folder: Path) -> Path:
    """The log that holds the sessions."""
    (found,) = [file for file in folder.glob("*.log") if file.stat().st_size]
    return found


def copies(folder: Path, number: int) -> Path:
    return Path(shutil.copytree(folder, folder.parent / f"copy-{number}"))


def test_a_log_that_ends_in_the_middle_keeps_every_whole_session(
    killed: Path, chance: random.Random
) -> None:
    size = log_of(killed).stat().st_size
    cuts = {size, size - 1, size - 2, *(chance.randrange(1, size) for _ in range(30))}
    found = []
    for number, cut in enumerate(sorted(cuts)):
        copy = copies(killed, number)
        os.truncate(log_of(copy), cut)
        with opened(copy) as store:
            found.append(whole_number(store))
            write_number(store, found[-1] + 1)
        with opened(copy) as store:
            assert whole_number(store) == found[-1] + 1
    assert found == sorted(found)
    assert found[-1] == SESSIONS
    assert found[-2] == SESSIONS - 1


def test_a_flipped_byte_in_the_log_is_never_a_silent_loss(
    killed: Path, chance: random.Random
) -> None:
    size = log_of(killed).stat().st_size
    told = 0
    for number in range(60):
        copy = copies(killed, number)
        place = chance.randrange(size)
        flip(log_of(copy), place)
        try:
            with opened(copy) as store:
                assert whole_number(store) == SESSIONS, f"byte {place} of {size}"
        except DamageError:
            told += 1
        shutil.rmtree(copy)
    assert told > 50


def test_a_flipped_byte_in_a_table_is_told(killed: Path, chance: random.Random) -> None:
    opened(killed).close()  # the log becomes a table
    (table,) = killed.glob("*.sst")
    size, told = table.stat().st_size, 0
    for number in range(40):
        copy = copies(killed, number)
        flip(copy / table.name, chance.randrange(size))
        try:
            with opened(copy) as store:
                assert whole_number(store) == SESSIONS
        except DamageError:
            told += 1
        shutil.rmtree(copy)
    assert told > 10


def test_a_reader_of_damaged_files_is_told_and_leaves_nothing_behind(killed: Path) -> None:
    (killed / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(SeamarkError):
        open_progress(f"rocksdb://{killed}", read_only=True)
    gc.collect()  # a folder that is left to the garbage collector would be a warning, and fail


def flip(file: Path, place: int) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        (byte,) = handle.read(1)
        handle.seek(place)
        handle.write(bytes([byte ^ 0x10]))


# values that something else has written


@pytest.mark.parametrize("key", ["source_sequence:orders", "config_hash"])
@pytest.mark.parametrize("value", [b"", b"1234567", b"123456789"])
def test_a_number_of_the_wrong_length_names_its_key(folder: Path, key: str, value: bytes) -> None:
    written(folder, key.encode(), value)
    with opened(folder) as store:
        told = partial(pytest.raises, DamageError, match=f"'{key}'")
        if key == "config_hash":
            with told():
                store.read_config_hash()
            return
        with told():
            store.read_all_checkpoints()
        with told():
            store.read_checkpoint("orders")
        with store.session() as s, told():
            s.stage_checkpoint("orders", 1)


def test_a_source_id_that_is_no_text_is_told(folder: Path) -> None:
    written(folder, b"source_sequence:\xff\xfe", bytes(8))
    with opened(folder) as store, pytest.raises(DamageError, match=r"\\xff\\xfe"):
        store.read_all_checkpoints()


def test_a_position_without_a_sequence_is_no_checkpoint(folder: Path) -> None:
    written(folder, b"source_position:orders", b"left over")
    with opened(folder) as store:
        assert (store.read_all_checkpoints(), store.read_checkpoint("orders")) == ({}, None)


def written(folder: Path, key: bytes, value: bytes) -> None:
    """Write a key as something else would."""
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    database[key] = value
    database.close()


def made_up(folder: Path, sources: int, size: int) -> Path:
    """A folder that is not ours: zeros, by a compression that makes next to nothing of them."""
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.zstd())
    database = rocksdict.Rdict(str(folder), options)
    for number in range(sources):
        database[b"source_sequence:s%d" % number] = (1).to_bytes(8, "big")
        database[b"source_position:s%d" % number] = bytes(size)
    database.flush()
    database.close()
    return folder


def test_a_position_that_is_larger_than_any_that_is_kept_is_damage(folder: Path) -> None:
    made_up(folder, 3, MAX_POSITION_BYTES + 1)
    with open_progress(f"rocksdb://{folder}", read_only=True) as store:
        for read in (store.read_all_checkpoints, partial(store.read_checkpoint, "s1")):
            with pytest.raises(DamageError, match="has 65537 bytes, and at most 65536"):
                read()


def test_a_small_folder_does_not_stand_for_many_large_positions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(folder, 400, MAX_POSITION_BYTES)
    read: list[int] = []

    def counted(position: bytes, source: str, where: str) -> None:
        read.append(len(position))

    monkeypatch.setattr(ledger, "require_kept_position", counted)
    with (
        open_progress(f"rocksdb://{folder}", read_only=True) as store,
        pytest.raises(DamageError, match="somebody has made them up"),
    ):
        store.read_all_checkpoints()
    stored = sum(file.stat().st_size for file in folder.iterdir())
    assert sum(read) <= limits_by_size.largest_positions(stored) + MAX_POSITION_BYTES


def test_what_seamark_has_written_is_read_however_much_and_however_alike(folder: Path) -> None:
    with opened(folder) as store, store.session() as session:
        for number in range(200):
            session.stage_checkpoint(f"s{number}", 1, bytes(MAX_POSITION_BYTES))
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    database.flush()
    database.compact_range(None, None)
    database.close()
    with opened(folder) as store:
        assert len(store.read_all_checkpoints()) == 200


def foreign_keys(folder: Path, keys: Iterable[bytes]) -> Path:
    """A folder that is not ours: sequences under these keys, which shrink to next to nothing."""
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.zstd())
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_size(1 << 20)
    options.set_block_based_table_factory(blocks)
    database = rocksdict.Rdict(str(folder), options)
    for key in keys:
        database[key] = (1).to_bytes(8, "big")
    database.flush()
    database.close()
    return folder


def staged(store: SourceCheckpointStore, *, allow_rewind: bool = False) -> None:
    with store.session() as session:
        session.stage_checkpoint("new", 1, allow_rewind=allow_rewind)


def each_read(folder: Path, message: str) -> None:
    """See that whatever reads all sources says that."""
    with opened(folder) as store:
        for read in (
            store.read_all_checkpoints,
            partial(staged, store),
            partial(staged, store, allow_rewind=True),
            store.clear_checkpoints,
        ):
            with pytest.raises(DamageError, match=message):
                read()


@pytest.mark.parametrize("kind", [b"sequence", b"position"])
def test_more_sources_than_any_store_has_are_damage(folder: Path, kind: bytes) -> None:
    count = limits.MOST_SOURCES + 1
    foreign_keys(folder, (b"source_%s:%d" % (kind, number) for number in range(count)))
    with opened(folder) as store:
        for read in (store.read_all_checkpoints, store.clear_checkpoints):
            with pytest.raises(DamageError, match="more than 10000 sources"):
                read()
        if kind == b"sequence":
            with pytest.raises(DamageError, match="more than 10000 sources"):
                staged(store)


def test_a_source_id_that_is_longer_than_any_that_is_kept_is_damage(folder: Path) -> None:
    long = b"a" * (limits.LONGEST_SOURCE + 1)
    foreign_keys(folder, [b"source_sequence:" + long])
    each_read(folder, r"the id of source 'a{200}'… has 10001 bytes")


def test_a_small_folder_does_not_stand_for_many_long_source_ids(folder: Path) -> None:
    long = b"a" * (limits.LONGEST_SOURCE - 10)
    foreign_keys(folder, (b"source_sequence:%06d" % number + long for number in range(1000)))
    each_read(folder, "somebody has made them up")


def test_a_small_folder_does_not_stand_for_many_long_query_ids(folder: Path) -> None:
    long = b"a" * 100_000
    foreign_keys(folder, (b"result_sequence:%06d" % number + long for number in range(100)))
    with opened(folder) as store, pytest.raises(DamageError, match="somebody has made them up"):
        store.clear_checkpoints()
