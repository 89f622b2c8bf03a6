"""A snapshot is read as Java's stream reader finds it, or not at all."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib

import pytest

from seamark import limits
from seamark.checkpoint_dir.formats.rocksdb_zip import zip_problems
from seamark.checkpoint_dir.state_files import needed_ssts
from seamark.checkpoint_dir.zip_stream import file_in_zip
from seamark.errors import DamageError
from tests.checkpoint_dir.support.samples import sample

MOST = 10_000
HIDDEN = b"v1\nhidden"


def zipped(*files: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return out.getvalue()


def header(name: bytes, content: bytes, *, method: int = 0, flags: int = 0) -> bytes:
    stored = content if method == 0 else deflated(content)
    sums = (0, 0, 0) if flags & 8 else (zlib.crc32(content), len(stored), len(content))
    fields = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, flags, method, 0, 0, *sums, len(name), 0)
    return fields + name + stored


def described(content: bytes) -> bytes:
    size = len(deflated(content))
    return struct.pack("<4s3I", b"PK\x07\x08", zlib.crc32(content), size, len(content))


def deflated(content: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(content) + packing.flush()


def test_what_spark_has_written_is_found() -> None:
    with zipfile.ZipFile(io.BytesIO(sample("rocksdb/3.zip"))) as archive:
        for name in archive.namelist():
            assert file_in_zip(sample("rocksdb/3.zip"), name, MOST) == archive.read(name)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_no_more_than_asked_for_is_held(method: int) -> None:
    data = zipped(("a", os.urandom(5000)), ("metadata", b"x" * 5000), ("b", b""), method=method)
    assert file_in_zip(data, "metadata", MOST) == b"x" * 5000
    assert file_in_zip(data, "metadata", 10) == b"x" * 11


def test_options_of_very_many_column_families_are_not_too_much() -> None:
    options = "".join(
        f'[CFOptions "state{number}"]\n'
        + "".join(f"  option_{line}={line * line}\n" for line in range(250))
        for number in range(500)
    )
    data = zipped(
        ("OPTIONS-000009", options.encode()), ("metadata", b"x"), method=zipfile.ZIP_DEFLATED
    )
    assert len(options) > 50 * len(data)
    assert file_in_zip(data, "metadata", MOST) == b"x"


def test_a_snapshot_unpacks_to_little_more_than_its_size() -> None:
    data = zipped(("a", bytes(1 << 20)), ("metadata", b"x"), method=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="more than any snapshot"):
        file_in_zip(data, "metadata", MOST)


def hidden_between() -> bytes:
    """A file that the directory at the end does not list."""
    data = zipped(("metadata", b"v1\n{}"))
    at = data.index(b"PK\x01\x02")
    return data[:at] + header(b"metadata", HIDDEN) + data[at:]


def hidden_in_content() -> bytes:
    """What follows the end of a packed stream is content to Python, and a file to Java."""
    first, second = b"v1\n{}", HIDDEN
    stream = deflated(first)
    inner = described(first) + header(b"metadata", second, method=8, flags=8) + described(second)
    whole = header(b"metadata", first, method=8, flags=8) + inner
    size = len(stream) + len(inner) - 16
    central = struct.pack(
        "<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 8, 8, 0, 0, zlib.crc32(first), size, len(first),
        8, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(central) + 8, len(whole), 0)
    return whole + central + b"metadata" + end


def test_python_alone_would_not_see_the_hidden_file() -> None:
    with zipfile.ZipFile(io.BytesIO(hidden_in_content())) as archive:
        assert archive.read("metadata") == b"v1\n{}"


@pytest.mark.parametrize(
    "data",
    [
        hidden_between(),
        hidden_in_content(),
        b"PK\x03\x05" + zipped(("metadata", b"v1\n{}")),
        zipped(("metadata", b"v1\n{}"), ("sub/metadata", HIDDEN)),
        zipped(("metadata", b"v1\n{}"), ("..", b"")),
        zipped(("other", b"v1\n{}")),
        header(b"metadata", HIDDEN, flags=8) + zipped(("metadata", b"v1\n{}")),
        header(b"metadata", HIDDEN, flags=1) + zipped(("metadata", b"v1\n{}")),
        header(b"metadata", HIDDEN),
        header(b"metadata", HIDDEN, method=8)[:-3],
    ],
    ids=[
        "a hidden file",
        "a file hidden in another",
        "something before it",
        "a file of that name in a folder",
        "a file above",
        "no such file",
        "a plain file of unknown size",
        "an encrypted file",
        "no end",
        "torn",
    ],
)
def test_what_two_readers_could_take_for_different_files_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, struct.error, zlib.error)):
        file_in_zip(data, "metadata", MOST)
    with pytest.raises(DamageError, match="not a RocksDB snapshot"):
        needed_ssts(data)


def test_all_files_together_unpack_to_no_more_than_a_snapshot_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = zipped(("a", bytes(600)), ("b", bytes(600)), ("metadata", b"v1\n{}"))
    assert file_in_zip(data, "metadata", MOST) == b"v1\n{}"
    monkeypatch.setattr(limits, "LARGEST_ZIP_PLAIN", 1000)
    with pytest.raises(ValueError, match="more than any snapshot"):
        file_in_zip(data, "metadata", MOST)


def with_extra(size: int, *, only_in_directory: bool = False) -> bytes:
    """A snapshot of one file that has an extra field of zeros."""
    text = b'v1\n{"sstFiles":[]}'
    plain = header(b"metadata", text)
    if only_in_directory:
        file = plain
    else:
        file = plain[:28] + struct.pack("<H", size) + b"metadata" + bytes(size) + text
    sums = (zlib.crc32(text), len(text), len(text))
    line = struct.pack(
        "<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, *sums, 8, size, 0, 0, 0, 0, 0
    )
    listed = line + b"metadata" + bytes(size)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(listed), len(file), 0)
    return file + listed + end


@pytest.mark.parametrize("only_in_directory", [False, True])
def test_a_file_with_a_long_extra_field_is_refused_before_the_field_is_read(
    only_in_directory: bool,
) -> None:
    most = limits.LONGEST_ZIP_EXTRA
    assert needed_ssts(with_extra(most, only_in_directory=only_in_directory)) == []
    data = with_extra(most + 1, only_in_directory=only_in_directory)
    with pytest.raises(DamageError, match=f"{most + 1} bytes of extra fields"):
        needed_ssts(data)
    assert "bytes of extra fields" in zip_problems(data)[0]


def test_the_extra_fields_of_a_file_inside_are_not_read_by_the_headers_either() -> None:
    file = with_extra(limits.LONGEST_ZIP_EXTRA + 1)
    with pytest.raises(ValueError, match="bytes of extra fields"):
        file_in_zip(file, "metadata", MOST)


def test_nothing_follows_the_list_of_files_or_could_be_taken_for_another_one() -> None:
    data = with_extra(0)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, 0, 1)
    listed, end = data[:-22], data[-22:]
    comment = struct.pack("<H", len(locator))
    at = listed.rindex(b"PK\x01\x02") + 32
    torn = listed[:at] + comment + listed[at + 2 :] + locator
    size = struct.pack("<I", len(torn) - listed.rindex(b"PK\x01\x02"))
    for odd in (
        data[:-2] + b"\x01\0x",  # a comment
        b"x" + data,
        torn + end[:12] + size + end[16:],
    ):
        with pytest.raises(DamageError, match="does not end as a snapshot does"):
            needed_ssts(odd)
    with pytest.raises(DamageError, match="torn"):
        needed_ssts(data.replace(b"PK\x01\x02", b"PK\x01\x03"))
    with pytest.raises(DamageError, match="cut off"):
        needed_ssts(b"PK")
