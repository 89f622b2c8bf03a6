"""How much work and memory a file of unknown origin may cause.

A store or a checkpoint directory may come from anybody. What it says about itself (a size, a count,
a number in a name) is compared with these limits before anything is done with it. They are far
above what Spark or Seamark writes. Where a legitimate file may be large, a limit grows with its
stored size, so that work stays in proportion to what was really read.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20

LARGEST_FILE: Final = 1 << 30
"""The largest file of a checkpoint directory or sink that is read as a whole."""

# state files of Spark

UNPACKED_FLOOR: Final = 32 * MIB
UNPACKED_RATIO: Final = 32
"""A compressed state file is unpacked up to the floor, or this many times its size if larger."""

COMPARED_FLOOR: Final = 64 * MIB
"""A snapshot is compared with the changes before it if all of their rows take no more than this, or
:data:`UNPACKED_RATIO` times their stored size if that is larger."""

RECORDS_FLOOR: Final = 500_000
BYTES_PER_RECORD: Final = 8
"""A state file may hold the floor of records, and one more for each of these stored bytes."""

MOST_ZIP_MEMBERS: Final = 10_000
"""Files inside a RocksDB snapshot. Spark puts about ten there."""

LARGEST_ZIP_METADATA: Final = 8 * MIB
LARGEST_ZIP_PLAIN: Final = 128 * MIB
"""What all files inside a RocksDB snapshot unpack to; the large ones are stored next to it."""

MOST_MISSING_NAMED: Final = 100
"""Missing files of one snapshot that are named one by one."""

MOST_ABSENT_STORES: Final = 1_000
"""State stores of a directory that are searched for although they have no folder."""

MOST_STORE_NAMES: Final = 100
"""Stores of one operator in each partition. A join has four."""

LARGEST_ENTRY: Final = 10**12
"""No log of Spark has an entry with a higher number."""

MOST_ENTRIES_TRIED: Final = 10_000_000
"""Files that are examined to find the batches that a directory can be rolled back to: trying one
batch goes through all of them. Spark keeps about 100 batches."""

# packs of a StateStore

PACK_FLOOR: Final = 32 * MIB
PACK_RATIO: Final = 64
"""An entry of a pack above the floor is stored as it is when it would shrink by more than this."""

READ_AHEAD: Final = 64 * MIB
"""Bytes of partitions that a restore reads ahead of its caller."""

# stores

LARGEST_GENERATION: Final = 2**53
"""Claims of one store. A higher number would leave no room to count further."""

MOST_TOMBSTONES: Final = 10_000
"""Tombstones that ``owner.json`` may name. A store has one or two."""

MOST_SUPERSEDED_RANGES: Final = 10_000
"""Ranges that rollbacks have taken out of use since the last prune."""

# pipelines

MOST_EPOCHS_AHEAD: Final = 100_000
"""Epochs that a sink may show beyond the newest checkpoint."""


def largest_unpacked(stored: int) -> int:
    """How many bytes a compressed state file of that size may unpack to."""
    return max(UNPACKED_FLOOR, UNPACKED_RATIO * stored)


def most_records(stored: int) -> int:
    """How many records a state file of that size may hold."""
    return RECORDS_FLOOR + stored // BYTES_PER_RECORD


def most_compared(stored: int) -> int:
    """How many bytes the rows of a snapshot and its changes may have, to be compared."""
    return max(COMPARED_FLOOR, UNPACKED_RATIO * stored)


def shrinks_too_much(plain: int, stored: int) -> bool:
    """Whether an entry of a pack takes so few bytes that it should not have been compressed."""
    return plain > PACK_FLOOR and plain > PACK_RATIO * stored
