"""LCB1 versions 1 and 2: the other system's batches are read, and what is not one is refused."""

from __future__ import annotations

import struct
import tracemalloc

import lz4.block
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seamark import limits
from seamark.errors import DamageError, InvalidInputError
from seamark.state import decode_batch, encode_batch
from tests.state.support.reference import batch, crc32c, flips, framed, literals, read_v2

GOLDEN = bytes.fromhex(
    "4c43423102000000010000001a000000b5c4574e1a000000"
    "f00b0f000000706172746974696f6e2d302f61676703000000010203"
)
GOLDEN_ENTRIES = [("partition-0/agg", b"\x01\x02\x03")]
SMALL = [("a/0", b"x" * 40), ("", b""), ("é", b"\x00")]
PLAIN = framed([(b"a", b"bc")])


def refused(data: bytes, *, limit: int | None = None) -> str:
    with pytest.raises(DamageError) as caught:
        decode_batch(data) if limit is None else decode_batch(data, limit=limit)
    return caught.value.what


def peak_of_refusing(data: bytes) -> int:
    """How much memory was taken at most while a batch was refused."""
    tracemalloc.start()
    try:
        refused(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# The other system's format.


def test_the_golden_vector_is_read() -> None:
    assert len(GOLDEN) == 52
    assert decode_batch(GOLDEN) == GOLDEN_ENTRIES == read_v2(GOLDEN)


def test_the_golden_vector_is_what_its_description_makes_of_it() -> None:
    assert batch(framed([(b"partition-0/agg", b"\x01\x02\x03")]), 1) == GOLDEN


def test_a_batch_is_written_in_the_other_systems_format() -> None:
    written = encode_batch(GOLDEN_ENTRIES)
    assert written[:16] == GOLDEN[:16]
    assert struct.unpack_from("<I", written, 16) == (crc32c(written[20:]),)
    assert written[20:24] == GOLDEN[20:24]
    assert read_v2(written) == GOLDEN_ENTRIES


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "entries",
    [
        [],
        [("", b"")],
        [("", b"x"), ("x", b"")],
        SMALL,
        [("zeros", bytes(100_000)), ("steps", bytes(range(256)) * 20)],
        [(f"{number}/agg", bytes([number])) for number in range(200)],
    ],
    ids=["none", "empty", "half empty", "small", "compressible", "many"],
)
def test_an_independent_reader_reads_what_we_write(
    version: int, entries: list[tuple[str, bytes]]
) -> None:
    written = encode_batch(entries, version)
    assert written[4:8] == bytes([version, 0, 0, 0])
    assert read_v2(written) == entries == decode_batch(written)


def test_version_2_is_what_is_written_by_default() -> None:
    assert encode_batch(SMALL) == encode_batch(SMALL, 2)


def test_version_1_is_read() -> None:
    assert decode_batch(batch(framed([(b"k", b"v"), (b"l", b"")]), 2, version=1)) == [
        ("k", b"v"),
        ("l", b""),
    ]


def test_keys_keep_their_order() -> None:
    entries = [(name, b"") for name in ("z", "a", "m", "A")]
    assert decode_batch(encode_batch(entries)) == entries


@pytest.mark.parametrize("version", [1, 2, 3])
def test_any_buffer_can_be_an_entry(version: int) -> None:
    given: list[tuple[str, bytes]] = [("a", bytearray(b"xy")), ("b", memoryview(b"z"))]  # type: ignore[list-item]
    assert decode_batch(encode_batch(given, version)) == [("a", b"xy"), ("b", b"z")]


# What cannot be written.


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_key_that_comes_twice_is_not_written(version: int) -> None:
    with pytest.raises(InvalidInputError, match=r"'a' is in the .* twice"):
        encode_batch([("a", b"1"), ("b", b""), ("a", b"2")], version)


@pytest.mark.parametrize("version", [0, -1, 4, 2**32])
def test_an_unknown_version_is_not_written(version: int) -> None:
    with pytest.raises(InvalidInputError, match="version"):
        encode_batch([("a", b"")], version)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_key_that_is_not_unicode_is_not_written(version: int) -> None:
    with pytest.raises(InvalidInputError):
        encode_batch([("\ud800", b"")], version)


# Each error that the other system documents, in its words.


@pytest.mark.parametrize("size", range(20))
@pytest.mark.parametrize("version", [1, 2])
def test_too_short_for_a_header(version: int, size: int) -> None:
    assert refused(batch(PLAIN, 1, version=version)[:size]) == "batch too short for header"


@pytest.mark.parametrize("magic", [b"LCB2", b"lcb1", b"\x00\x00\x00\x00", b"1BCL"])
def test_invalid_magic(magic: bytes) -> None:
    assert refused(magic + GOLDEN[4:]) == "invalid batch magic"


@pytest.mark.parametrize("version", [0, 4, 255, 2**31, 2**32 - 1])
def test_unsupported_version(version: int) -> None:
    data = GOLDEN[:4] + struct.pack("<I", version) + GOLDEN[8:]
    assert refused(data) == f"unsupported batch version {version}"


def test_crc_mismatch_tells_both() -> None:
    damaged = GOLDEN[:-1] + b"\x04"
    expected, actual = crc32c(GOLDEN[20:]), crc32c(damaged[20:])
    assert refused(damaged) == (
        f"batch CRC32C mismatch: expected {expected:#010x}, actual {actual:#010x}"
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x50abc",  # five literals, three there
        b"\x10a\x05\x00\x50abcde",  # a copy from before the beginning
        b"\x10a\x00\x00\x50abcde",  # a copy from nowhere
        b"\xf0" + b"\xff" * 40,  # a length without an end
    ],
    ids=["nothing", "cut off", "before the beginning", "distance 0", "endless"],
)
def test_lz4_that_cannot_be_unpacked(version: int, block: bytes) -> None:
    damaged = batch(b"?" * 11, 1, version=version, block=block)
    assert refused(damaged).startswith(("LZ4 decompression failed: ", "the batch claims 11 bytes"))


@pytest.mark.parametrize(
    ("plain", "count", "what"),
    [
        (framed([(b"a" * 9, b"")]) + b"\x01\x02\x03", 2, "key length"),
        (framed([(b"a" * 9, b"")]) + struct.pack("<I", 9) + b"12345678", 2, "key data"),
        (framed([(b"a" * 9, b"")]) + struct.pack("<I", 2) + b"ab\x00\x00\x00", 2, "data length"),
        (struct.pack("<I", 1) + b"a" + struct.pack("<I", 4) + b"abc", 1, "data"),
        (struct.pack("<I", 2**32 - 1) + b"a" * 8, 1, "key data"),
        (struct.pack("<I", 1) + b"a" + struct.pack("<I", 2**32 - 1) + b"abc", 1, "data"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_truncated_entry(version: int, plain: bytes, count: int, what: str) -> None:
    assert refused(batch(plain, count, version=version)) in (
        f"truncated batch entry ({what})",
        f"batch claims {count} entries in {len(plain)} bytes",
    )


# Stricter than the other system.


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_without_its_body(version: int) -> None:
    header = b"LCB1" + struct.pack("<III", version, 0, 0)
    crc = struct.pack("<I", crc32c(b""))
    assert refused(header + crc)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("header", "body"), [(11, 12), (12, 11), (0, 11), (2**32 - 1, 11)])
def test_header_and_body_disagree_on_the_size(version: int, header: int, body: int) -> None:
    said = refused(batch(PLAIN, 1, version=version, header_size=header, body_size=body))
    assert said == f"batch header says {header} bytes, its body says {body}"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("claimed", [10, 12, 50])
def test_both_sizes_disagree_with_what_is_unpacked(version: int, claimed: int) -> None:
    assert len(PLAIN) == 11
    assert refused(batch(PLAIN, 1, version=version, header_size=claimed, body_size=claimed))


@pytest.mark.parametrize("version", [1, 2])
def test_bytes_after_the_last_entry(version: int) -> None:
    assert refused(batch(PLAIN + b"?", 1, version=version)) == (
        "batch has 1 bytes after its last entry"
    )
    assert refused(batch(PLAIN, 0, version=version)) == "batch has 11 bytes after its last entry"


@pytest.mark.parametrize("version", [1, 2])
def test_bytes_after_the_block(version: int) -> None:
    assert refused(batch(PLAIN, 1, version=version, block=literals(PLAIN) + b"\x00"))


@pytest.mark.parametrize("key", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_key_that_is_not_utf_8(version: int, key: bytes) -> None:
    assert "not UTF-8" in refused(batch(framed([(key, b"")]), 1, version=version))


@pytest.mark.parametrize("version", [1, 2])
def test_of_a_key_that_laminardb_wrote_twice_the_last_one_counts(version: int) -> None:
    plain = framed([(b"a", b"1"), (b"b", b""), (b"a", b"2")])
    assert decode_batch(batch(plain, 3, version=version)) == [("b", b""), ("a", b"2")]


@pytest.mark.parametrize("version", [1, 2])
def test_few_bytes_do_not_stand_for_very_many_equal_entries(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 10_000
    plain = framed([(b"a", b"")] * many)
    data = batch(plain, many, version=version, block=lz4.block.compress(plain, store_size=False))
    assert decode_batch(data) == [("a", b"")]
    monkeypatch.setattr(limits, "RECORDS_FLOOR", 100)
    assert "repeats its keys" in refused(data)
    different = [(b"%d" % number, b"") for number in range(many)]
    assert len(decode_batch(batch(framed(different), many, version=version))) == many


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [2, 3, 1_000_000, 2**32 - 1])
def test_more_entries_than_there_can_be(version: int, count: int) -> None:
    assert refused(batch(PLAIN, count, version=version)) in (
        f"batch claims {count} entries in 11 bytes",
        "truncated batch entry (key length)",
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("claimed", [2**32 - 1, 2**31, 1 << 30, 300_000])
def test_a_kilobyte_that_claims_gigabytes_is_refused_before_memory_is_taken(
    version: int, claimed: int
) -> None:
    data = batch(
        b"",
        1,
        version=version,
        header_size=claimed,
        body_size=claimed,
        block=literals(b"x" * 1000),
    )
    assert 1000 < len(data) < 1100
    assert peak_of_refusing(data) < 300_000
    assert f"claims {claimed} bytes" in refused(data)


def test_entries_that_claim_gigabytes_are_refused_before_memory_is_taken() -> None:
    for plain in (
        struct.pack("<I", 2**32 - 1) + b"x" * 1000,
        struct.pack("<I", 0) + struct.pack("<I", 2**32 - 1) + b"x" * 1000,
    ):
        assert peak_of_refusing(batch(plain, 1)) < 300_000
    assert peak_of_refusing(batch(b"x" * 1000, 2**32 - 1)) < 300_000


@pytest.mark.parametrize("version", [1, 2])
def test_a_large_batch_that_is_compressed_more_than_any_is_refused_before_memory_is_taken(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_FLOOR", 1 << 20)
    plain = framed([(b"k", bytes(4 << 20))])
    data = batch(plain, 1, version=version, block=lz4.block.compress(plain, store_size=False))
    assert len(data) < len(plain) // 200
    assert peak_of_refusing(data) < 300_000
    assert f"claims {len(plain)} bytes in" in refused(data)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [(1 << 20) - 9, (1 << 20) - 8, 3 << 20])
def test_what_is_written_can_be_read_however_much_it_would_shrink(
    version: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_FLOOR", 1 << 20)
    entries = [("k", bytes(size))]
    written = encode_batch(entries, version)
    assert decode_batch(written) == entries
    if version == 2:
        assert read_v2(written) == entries
    assert (len(written) > size) == (size + 9 > 1 << 20), "plain only where it must be"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_batch_of_any_size_can_be_left_uncompressed(version: int) -> None:
    for size in range(300):
        entries = [("", bytes(size))]
        written = encode_batch(entries, version, compress=False)
        assert decode_batch(written) == entries
        assert len(written) > size
        if version == 2:
            assert read_v2(written) == entries


def test_a_batch_as_large_as_the_other_system_means_them_may_shrink_as_lz4_can() -> None:
    plain = framed([(b"k", bytes(32 << 20))])
    data = batch(plain, 1, block=lz4.block.compress(plain, store_size=False))
    assert len(data) < len(plain) // 200
    ((_, found),) = decode_batch(data)
    assert len(found) == 32 << 20


def test_a_caller_can_set_a_lower_limit() -> None:
    data = encode_batch([("a", bytes(10_000))])
    assert decode_batch(data, limit=10_009)
    assert "claims 10009 bytes" in refused(data, limit=10_008)
    assert refused(encode_batch([("a", bytes(10_000))], 3), limit=9_999)
    assert refused(encode_batch([("a", bytes(5_000)), ("b", bytes(5_000))], 3), limit=9_999)


def test_a_higher_limit_does_not_let_anything_else_through() -> None:
    claimed = (1 << 31) + 5
    data = batch(b"", 1, version=1, header_size=claimed, body_size=claimed, block=bytes(9 << 20))
    refused(data, limit=1 << 32)


# Damage anywhere.


def test_every_flipped_bit_of_version_2_is_an_error() -> None:
    for entries in ([], SMALL, GOLDEN_ENTRIES):
        for damaged in flips(encode_batch(entries)):
            refused(damaged)


def test_a_flipped_bit_of_version_1_never_raises_anything_else() -> None:
    for damaged in flips(encode_batch(SMALL, 1)):
        try:
            found = decode_batch(damaged)
        except DamageError:
            continue
        assert [type(part) for entry in found for part in entry] == [str, bytes] * len(found)


@pytest.mark.parametrize("version", [1, 2])
def test_every_truncation_is_an_error(version: int) -> None:
    whole = encode_batch(SMALL, version)
    for size in range(len(whole)):
        refused(whole[:size])


@pytest.mark.parametrize("version", [1, 2])
def test_every_byte_more_is_an_error(version: int) -> None:
    whole = encode_batch(SMALL, version)
    for byte in range(256):
        refused(whole + bytes([byte]))


entries_of_any_kind = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.one_of(
        st.binary(max_size=200),
        st.builds(lambda piece, times: piece * times, st.binary(max_size=5), st.integers(0, 500)),
    ),
    max_size=20,
).map(lambda found: list(found.items()))


@given(entries_of_any_kind, st.sampled_from([1, 2]))
def test_there_and_back(entries: list[tuple[str, bytes]], version: int) -> None:
    written = encode_batch(entries, version)
    assert decode_batch(written) == entries == read_v2(written)


@given(entries_of_any_kind)
def test_batches_of_an_independent_writer_are_read(entries: list[tuple[str, bytes]]) -> None:
    plain = framed([(key.encode(), data) for key, data in entries])
    for version in (1, 2):
        assert decode_batch(batch(plain, len(entries), version=version)) == entries


def decodes_or_is_damage(data: bytes) -> None:
    try:
        decode_batch(data)
    except DamageError:
        return


@given(st.binary(max_size=400))
@example(b"LCB1")
@example(b"LCB1\x01\x00\x00\x00" + b"\xff" * 30)
def test_arbitrary_bytes_are_damage_and_nothing_worse(data: bytes) -> None:
    decodes_or_is_damage(data)
    for version in (1, 2, 3):
        decodes_or_is_damage(b"LCB1" + struct.pack("<I", version) + data)


@given(
    st.binary(max_size=100),
    st.integers(0, 2**32 - 1) | st.integers(0, 20),
    st.sampled_from([1, 2]),
    st.none() | st.binary(max_size=60),
    st.none() | st.integers(0, 300) | st.integers(0, 2**32 - 1),
)
def test_whatever_a_batch_with_a_right_checksum_claims_it_is_damage_and_nothing_worse(
    plain: bytes, count: int, version: int, block: bytes | None, size: int | None
) -> None:
    decodes_or_is_damage(
        batch(plain, count, version=version, block=block, header_size=size, body_size=size)
    )
