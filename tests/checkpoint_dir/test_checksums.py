from __future__ import annotations

import pytest

from seamark.checkpoint_dir.formats.checksums import hadoop_crc_matches, spark_crc_matches
from tests.checkpoint_dir.support.samples import SAMPLES, sample, sample_paths

WITH_HADOOP = [
    path
    for path in sample_paths("**/*")
    if (SAMPLES / path).with_name(f".{path.rsplit('/', 1)[-1]}.crc").exists()
]
WITH_SPARK = [path for path in sample_paths("**/*") if (SAMPLES / f"{path}.crc").exists()]


def beside(path: str) -> bytes:
    folder, _, name = path.rpartition("/")
    return sample(f"{folder}/.{name}.crc")


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_there_are_samples_of_both_kinds() -> None:
    assert len(WITH_HADOOP) > 30
    assert len(WITH_SPARK) == 8
    assert any(len(sample(path)) > 512 for path in WITH_HADOOP), "one has more than one chunk"


@pytest.mark.parametrize("path", WITH_HADOOP)
def test_a_file_that_hadoop_would_read_is_not_called_damaged(path: str) -> None:
    assert hadoop_crc_matches(sample(path), beside(path))


@pytest.mark.parametrize("path", ["hdfs/2.delta", "logs/sink/5.compact"])
def test_one_flipped_bit_in_a_file_or_its_hidden_checksum_is_told(path: str) -> None:
    data, crc = sample(path), beside(path)
    for bit in range(8 * len(data)):
        assert not hadoop_crc_matches(flipped(data, bit), crc)
    for bit in [*range(32), *range(64, 8 * len(crc))]:  # between them: the length of a chunk
        assert not hadoop_crc_matches(data, flipped(crc, bit))
    for end in range(len(crc)):
        assert not hadoop_crc_matches(data, crc[:end])
    for end in range(len(data)):
        assert not hadoop_crc_matches(data[:end], crc)


def test_an_empty_file_has_a_hidden_checksum_without_chunks() -> None:
    assert hadoop_crc_matches(b"", b"crc\0\0\0\x02\0")
    assert not hadoop_crc_matches(b"x", b"crc\0\0\0\x02\0")


@pytest.mark.parametrize("path", WITH_SPARK)
def test_a_file_that_spark_would_accept_is_not_called_damaged(path: str) -> None:
    assert spark_crc_matches(sample(path), sample(f"{path}.crc"))
    assert spark_crc_matches(sample(path), sample(f"{path}.crc").decode())


def test_one_flipped_bit_under_sparks_checksum_is_told() -> None:
    path = WITH_SPARK[0]
    data, crc = sample(path), sample(f"{path}.crc")
    for bit in range(8 * len(data)):
        assert not spark_crc_matches(flipped(data, bit), crc)
    for end in range(len(data)):
        assert not spark_crc_matches(data[:end], crc)


@pytest.mark.parametrize(
    "torn",
    ["", "{", "null", '{"algorithm":"CRC32C"}', '{"algorithm":"MD5","value":0,"mainFileSize":0}'],
)
def test_a_checksum_file_that_cannot_be_read_proves_nothing_right(torn: str) -> None:
    assert not spark_crc_matches(b"", torn)
    assert spark_crc_matches(b"", '{"algorithm":"CRC32C","value":0,"mainFileSize":0}')
