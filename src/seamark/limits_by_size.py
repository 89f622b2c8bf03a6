"""Limits that grow with what is stored, so that work stays in proportion to what was really read.

They are worked out from the numbers in :mod:`seamark.limits`.

Tests: ``tests/test_limits.py``, ``tests/test_limits_of_restores.py``.
"""

from __future__ import annotations

from seamark import limits


def largest_unpacked(stored: int) -> int:
    """How many bytes a compressed state file of that size may unpack to."""
    return max(limits.UNPACKED_FLOOR, limits.UNPACKED_RATIO * stored)


def largest_positions(stored: int) -> int:
    """How many bytes the checkpoints of sources in a folder of RocksDB of that size may take."""
    return max(limits.POSITIONS_FLOOR, limits.UNPACKED_RATIO * stored)


def largest_zip_metadata(stored: int) -> int:
    """What the metadata of a RocksDB snapshot may unpack to."""
    return min(
        limits.LARGEST_ZIP_METADATA,
        max(limits.ZIP_METADATA_FLOOR, limits.ZIP_METADATA_RATIO * stored),
    )


def largest_zip_plain(stored: int) -> int:
    """What all files inside a RocksDB snapshot may unpack to."""
    return min(
        limits.LARGEST_ZIP_PLAIN, max(limits.ZIP_METADATA_FLOOR, limits.ZIP_PLAIN_RATIO * stored)
    )


def most_records(stored: int) -> int:
    """How many records a state file of that size may hold."""
    return limits.RECORDS_FLOOR + stored // limits.BYTES_PER_RECORD


def most_folders(files: int) -> int:
    """How many folders a checkpoint directory of so many files may have."""
    return max(limits.FOLDERS_FLOOR, limits.FOLDERS_PER_FILE * files)


def most_compared(stored: int) -> int:
    """How many bytes the rows of a snapshot and its changes may have, to be compared."""
    return max(limits.COMPARED_FLOOR, limits.UNPACKED_RATIO * stored)


def comparing_memory(stored: int) -> int:
    """How much memory a comparison of RocksDB's snapshots of that size may take."""
    return limits.COMPARING_MEMORY + limits.UNPACKED_RATIO * stored


def comparing_seconds(stored: int) -> int:
    """How much processor time comparisons of RocksDB's snapshots of that size may take."""
    return limits.COMPARING_SECONDS + stored // limits.COMPARING_BYTES_PER_SECOND


def largest_table_text(stored: int) -> int:
    """How many bytes a zipped file of a table's log may unpack to."""
    return min(
        limits.LARGEST_TABLE_FILE, max(limits.TABLE_TEXT_FLOOR, limits.UNPACKED_RATIO * stored)
    )


def most_table_values(stored: int) -> int:
    """How many values a metadata file of an Iceberg table of that size may hold."""
    return limits.RECORDS_FLOOR + stored // limits.BYTES_PER_TABLE_VALUE


def most_tried(stored: int) -> int:
    """How many bytes the rows of targets that only a store names may unpack to."""
    return max(limits.TRIED_FLOOR, limits.TRIED_RATIO * stored)


def state_seconds(stored: int) -> int:
    """How long by the clock Spark may read rows of state from files of that size."""
    return limits.STATE_PATIENCE + stored // limits.STATE_BYTES_PER_SECOND_BY_THE_CLOCK


def job_seconds(stored: int) -> int:
    """How long by the clock Spark may read files of which nobody knows what they take."""
    return limits.UNTRIED_SECONDS + stored // limits.TRIED_BYTES_PER_SECOND_BY_THE_CLOCK


def checkpoint_seconds(stored: int) -> int:
    """How much processor time reading the Parquet files of a checkpoint may take."""
    return limits.CHECKPOINT_SECONDS + stored // limits.CHECKPOINT_BYTES_PER_SECOND


def shrinks_too_much(plain: int, stored: int) -> bool:
    """Whether an entry of a pack takes so few bytes that it should not have been compressed."""
    return plain > limits.PACK_FLOOR and plain > limits.PACK_RATIO * stored


def leaves_no_room(plain: int, stored: int) -> bool:
    """Whether a pack takes so few bytes that with one more entry, however small and though it is
    stored as it is, it could shrink too much."""
    return plain - limits.PACK_RATIO * stored > max(
        0, (limits.PACK_RATIO - 1) * (limits.PACK_FLOOR - plain)
    )


def batch_shrinks_too_much(plain: int, stored: int) -> bool:
    """Whether a batch of version 1 or 2 takes so few bytes that it should not be compressed."""
    return plain > limits.BATCH_FLOOR and plain > limits.PACK_RATIO * stored


def parts_shrink_too_much(plain: int, stored: int) -> bool:
    """Whether all batches of an epoch take so few bytes that one should not be compressed."""
    return plain > limits.BATCH_FLOOR + limits.PACK_RATIO * stored


def index_shrinks_too_much(plain: int, stored: int) -> bool:
    """Whether the index of a checkpoint's files takes so few bytes that it should be plain."""
    return plain > limits.INDEX_FLOOR and plain > limits.INDEX_RATIO * stored


def unpacks_to_too_much(plain: int, stored: int) -> bool:
    """Whether all packs of a chain of checkpoints together claim more than they may hold."""
    return plain > limits.CHAIN_FLOOR and plain > limits.PACK_RATIO * stored
