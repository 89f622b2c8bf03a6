from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.checkpoint_dir.formats.lz4_blocks import EMPTY
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes, zip_problems
from seamark.checkpoint_dir.state_files import needed_ssts
from seamark.errors import DamageError
from tests.checkpoint_dir.support.samples import sample, sample_paths

WHOLE = sample("rocksdb/3.zip")


def contents(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def made_of(metadata: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("metadata", metadata)
    return out.getvalue()


def test_a_snapshot_of_spark_has_no_problems() -> None:
    assert zip_problems(WHOLE) == []


def test_the_sizes_are_those_of_the_files_beside() -> None:
    sizes = sst_sizes(WHOLE)
    assert [f"SSTs/{name}" for name in sizes] == needed_ssts(WHOLE)
    (path,) = sample_paths("rocksdb/SSTs/*.sst")
    assert sizes[path.rsplit("/", 1)[1]] == len(sample(path))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 8 * len(WHOLE) - 1))
def test_a_flipped_bit_is_told_or_changes_no_file(bit: int) -> None:
    changed = bytearray(WHOLE)
    changed[bit // 8] ^= 1 << bit % 8
    if not zip_problems(bytes(changed)):
        assert contents(bytes(changed)) == contents(WHOLE)


def test_the_checksum_that_java_reads_counts_too() -> None:
    at = WHOLE.index(b"PK\x07\x08") + 4
    changed = bytearray(WHOLE)
    changed[at] ^= 1
    assert zip_problems(bytes(changed)) == ["MANIFEST-000005: its headers differ"]


def test_every_truncation_is_told() -> None:
    for end in range(0, len(WHOLE), 7):
        assert zip_problems(WHOLE[:end]), end
    assert zip_problems(WHOLE[:-1])
    assert zip_problems(b"") == [EMPTY]


@pytest.mark.parametrize(
    "metadata",
    [b"", b"v1", b"v1\n{", b'v1\n{"sstFiles":[{"sizeBytes":1}]}', b'x2\n{"sstFiles":[]}'],
)
def test_metadata_that_cannot_be_read_is_told(metadata: bytes) -> None:
    data = made_of(metadata)
    assert zip_problems(data)
    with pytest.raises(DamageError):
        sst_sizes(data)


def test_a_store_without_rows_needs_no_files() -> None:
    assert sst_sizes(made_of(b'v1\n{"sstFiles":[],"numKeys":0}')) == {}


def test_what_spark_4_0_writes_is_read_as_well() -> None:
    listed = b'{"sstFiles":[{"localFileName":"1.sst","dfsSstFileName":"1-a.sst","sizeBytes":7}]}'
    assert sst_sizes(made_of(b"v2\n" + listed)) == {"1-a.sst": 7}
