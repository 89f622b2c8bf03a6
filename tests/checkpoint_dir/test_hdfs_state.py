from __future__ import annotations

import struct

import lz4.block
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.checkpoint_dir.formats import hdfs_state as state_data
from seamark.checkpoint_dir.formats import lz4_blocks
from seamark.checkpoint_dir.formats.hdfs_state import (
    StateChange,
    apply_changes,
    read_changes,
    read_snapshot,
    same_state,
)
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable, codec_of
from seamark.errors import DamageError
from tests.checkpoint_dir.support.samples import sample, sample_paths

STATE = [
    path
    for kind in ("delta", "snapshot", "changelog")
    for path in sample_paths(f"*/*.{kind}")
    if path.split("/")[0] not in ("zstd", "snappy", "lzf")
]
ONE_OF_EACH = ["hdfs/4.delta", "hdfs/6.snapshot", "hdfs-row-checksums/4.delta"] + [
    path for path in STATE if path.startswith("changelog-") and path.split("/")[1][0] == "4"
]


def packed(plain: bytes, *, block: int = 1 << 15, level: int = 5) -> bytes:
    """What lz4-java would write."""
    parts: list[bytes] = []
    for at in [*range(0, len(plain), block), len(plain)]:
        piece = plain[at : at + block]
        small: bytes = lz4.block.compress(piece, store_size=False) if piece else b""
        as_is = len(small) >= len(piece)
        method, payload = (0x10, piece) if as_is else (0x20, small)
        checksum = xxhash.xxh32_intdigest(piece, 0x9747B28C) & 0xFFFFFFF if piece else 0
        sizes = (len(payload), len(piece), checksum)
        parts.append(struct.pack("<8sBIII", b"LZ4Block", method | level, *sizes) + payload)
    return b"".join(parts)


def sized(part: bytes | None) -> bytes:
    return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part


def change_file(changes: list[StateChange], version: int = 1) -> bytes:
    lineage = b"\0\x02[]" if version > 2 else b""
    head = b"" if version == 1 else b"\0\x02v%d" % version + lineage
    typed = version in (2, 4)
    body = b""
    for key, value, merge in changes:
        kind = b"\x10" if value is None else b"\x11" if merge else b"\x01"
        body += (kind if typed else b"") + sized(key) + sized(value)
    return packed(head + body + (b"\0" if typed else sized(None)))


def deltas(folder: str, first: int, last: int) -> list[bytes]:
    return [sample(f"{folder}/{version}.delta") for version in range(first, last + 1)]


# what Spark wrote


def test_there_are_samples_of_every_kind() -> None:
    assert len(STATE) == 36
    assert len(ONE_OF_EACH) == 7


@pytest.mark.parametrize("path", STATE)
def test_every_file_of_spark_can_be_read(path: str) -> None:
    changes = read_changes(sample(path))
    assert all(change.key for change in changes)


def test_rows_come_out_as_spark_put_them_in() -> None:
    first = read_changes(sample("hdfs/1.delta"))
    assert [b"key-0" in key for key, _, _ in first].count(True) == 1
    assert all(value is not None and value[8:] == bytes(8) for _, value, _ in first), "the sum is 0"


def test_a_delta_that_changes_nothing_is_told_from_one_that_does() -> None:
    assert read_changes(sample("hdfs/8.delta")) == []
    assert read_changes(sample("hdfs/7.delta")) != []


def test_column_families_have_their_deletions() -> None:
    (path,) = sample_paths("changelog-4/4_*.changelog")
    for changes in (read_changes(sample("changelog-2/4.changelog")), read_changes(sample(path))):
        assert len(changes) == 20
        assert sum(change.value is None for change in changes) == 6


@pytest.mark.parametrize(("folder", "checked"), [("hdfs", False), ("hdfs-row-checksums", True)])
def test_a_healthy_snapshot_equals_its_deltas(folder: str, checked: bool) -> None:
    third, sixth = sample(f"{folder}/3.snapshot"), sample(f"{folder}/6.snapshot")
    assert same_state(third, deltas(folder, 1, 3), row_checksums=checked)
    assert same_state(sixth, deltas(folder, 1, 6), row_checksums=checked)
    assert same_state(sixth, deltas(folder, 4, 6), third, row_checksums=checked)


def test_a_swapped_delta_or_a_stale_snapshot_is_exposed() -> None:
    third, sixth = sample("hdfs/3.snapshot"), sample("hdfs/6.snapshot")
    swapped = [*deltas("hdfs", 1, 4), sample("hdfs/4.delta"), sample("hdfs/6.delta")]
    assert not same_state(sixth, swapped)
    assert not same_state(sixth, deltas("hdfs", 1, 5))
    assert not same_state(third, deltas("hdfs", 1, 6)), "the snapshot of another version"
    assert not same_state(sixth, deltas("hdfs", 5, 6), third), "one delta was left out"


def test_a_change_removes_a_key_or_gives_it_a_value() -> None:
    state = {b"a": bytes(8)}
    apply_changes(state, [StateChange(b"a", None), StateChange(b"b", bytes(16))])
    assert state == {b"b": bytes(16)}


def test_the_four_bytes_too_many_of_an_old_spark_make_no_difference() -> None:
    old = change_file([StateChange(b"k", bytes(20))])
    assert same_state(change_file([StateChange(b"k", bytes(16))]), [old])


@pytest.mark.parametrize("codec", ["zstd", "snappy", "lzf"])
def test_another_codec_is_not_called_damage(codec: str) -> None:
    data = sample(f"{codec}/2.delta")
    assert codec_of(data) == codec
    with pytest.raises(NotDecodable, match=codec):
        read_changes(data)


def test_a_changelog_of_a_newer_spark_is_not_called_damage() -> None:
    with pytest.raises(NotDecodable, match="version 5"):
        read_changes(packed(b"\0\x02v5" + bytes(20)))


def test_a_value_that_rocksdb_adds_up_is_not_guessed() -> None:
    (change,) = read_changes(change_file([StateChange(b"k", b"v", True)], 2))
    assert change.merge
    with pytest.raises(NotDecodable):
        apply_changes({}, [change])


# what is broken


def unchanged_or_told(data: bytes, expected: list[StateChange]) -> None:
    try:
        found = read_changes(data)
    except DamageError:
        return
    assert found == expected


@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_every_single_flipped_bit_is_told_or_changes_nothing(path: str) -> None:
    data = sample(path)
    expected = read_changes(data)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        unchanged_or_told(bytes(changed), expected)


@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_every_truncation_is_told(path: str) -> None:
    data = sample(path)
    for end in range(len(data)):
        with pytest.raises(DamageError):
            read_changes(data[:end])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", lz4_blocks.EMPTY),
        (b"LZ4B", lz4_blocks.TORN),
        (b"\0" * 40, lz4_blocks.NOT_STATE),
        (sample("hdfs/4.delta")[:-1], lz4_blocks.TORN),
        (sample("hdfs/4.delta") + b"\0", lz4_blocks.TRAILING),
        (sample("hdfs/4.delta")[:-21], lz4_blocks.TORN),
        (packed(struct.pack(">i", -7)), state_data.RECORD),
        (packed(struct.pack(">i", 7)), lz4_blocks.TORN),
        (packed(b"\0\x02v2\x05" + sized(b"k") + sized(b"v") + b"\0"), state_data.RECORD),
        (packed(b"\0\x02v2\x10" + sized(b"k") + sized(b"v") + b"\0"), state_data.RECORD),
        (packed(b"\0\x02v2\x01" + sized(b"k") + sized(None) + b"\0"), state_data.RECORD),
        (packed(sized(None) + b"more"), lz4_blocks.TRAILING),
        (packed(b"\0\x02v3\0"), lz4_blocks.TORN),
        (packed(b"\0\x02v3\xff\xff[]"), lz4_blocks.TORN),
    ],
)
def test_each_kind_of_damage_has_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DamageError) as told:
        read_changes(data)
    assert told.value.what == reason


def test_a_wrong_checksum_alone_is_told() -> None:
    data = bytearray(sample("hdfs/4.delta"))
    data[17] ^= 1
    with pytest.raises(DamageError) as told:
        read_changes(bytes(data))
    assert told.value.what == lz4_blocks.CHECKSUM


def test_a_snapshot_that_deletes_is_damaged() -> None:
    with pytest.raises(DamageError) as told:
        read_snapshot(change_file([StateChange(b"k", None)]))
    assert told.value.what == state_data.SNAPSHOT_DELETES


def test_a_block_that_claims_to_be_huge_is_not_unpacked() -> None:
    head = struct.pack("<8sBIII", b"LZ4Block", 0x25, 4, 0x7FFFFFFF, 0)
    with pytest.raises(DamageError) as told:
        read_changes(head + bytes(4))
    assert told.value.what == lz4_blocks.BLOCK


# what tests wrote


values = st.none() | st.binary(max_size=40)


@settings(deadline=None)
@given(
    st.lists(st.builds(StateChange, st.binary(max_size=40), values, st.just(False)), max_size=20),
    st.sampled_from([1, 2, 3, 4]),
)
def test_any_records_of_any_version_come_back(changes: list[StateChange], version: int) -> None:
    assert read_changes(change_file(changes, version)) == changes


def test_a_state_of_many_blocks_comes_back_and_losing_one_is_told() -> None:
    changes = [StateChange(b"%06d" % number, b"%08d" % number) for number in range(20_000)]
    data = change_file(changes)
    assert data.count(b"LZ4Block") > 5
    assert read_changes(data) == changes
    second = data.index(b"LZ4Block", 1)
    third = data.index(b"LZ4Block", second + 1)
    with pytest.raises(DamageError):
        read_changes(data[:second] + data[third:])
