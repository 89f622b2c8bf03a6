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

LARGEST_DOCUMENT: Final = 64 * MIB
"""A small file of a checkpoint directory, a sink or a table that describes the others: an entry of
``offsets`` or ``commits``, metadata, a record of an epoch, a journal."""

HOLE_FLOOR: Final = MIB
HOLE_RATIO: Final = 32
"""A file or a range of one above the floor is not read as a whole when less than one byte in so
many is stored: the others are a hole."""

# state files of Spark

UNPACKED_FLOOR: Final = 32 * MIB
UNPACKED_RATIO: Final = 32
"""A compressed state file is unpacked up to the floor, or this many times its size if larger."""

COMPARED_FLOOR: Final = 64 * MIB
"""A snapshot is compared with the changes before it if all of their rows take no more than this, or
:data:`UNPACKED_RATIO` times their stored size if that is larger."""

COMPARING_MEMORY: Final = 224 * MIB
COMPARING_SECONDS: Final = 2
COMPARING_BYTES_PER_SECOND: Final = MIB // 2
"""What comparing RocksDB's snapshots may take. Memory for each: the first, of which the libraries
use about 70 MiB, and :data:`UNPACKED_RATIO` times the stored size. Processor time for some 64 MiB
of them together: the second, and one more second for so many stored bytes."""

RECORDS_FLOOR: Final = 500_000
BYTES_PER_RECORD: Final = 8
"""A state file may hold the floor of records, and one more for each of these stored bytes."""

MOST_ZIP_MEMBERS: Final = 10_000
"""Files inside a RocksDB snapshot. Spark puts about ten there."""

LONGEST_ZIP_EXTRA: Final = 256
"""Bytes of extra fields of a file inside a RocksDB snapshot. Spark writes none."""

LARGEST_ZIP_METADATA: Final = 8 * MIB
ZIP_METADATA_FLOOR: Final = 4 << 10
ZIP_METADATA_RATIO: Final = 16
"""The metadata of a RocksDB snapshot unpacks to no more than the floor, or so many times its size
if that is larger, and never to more than the first. A directory may have very many snapshots that
are small, so the floor is low. Names of SST files hold UUIDs, and shrink by less than ten."""

LARGEST_ZIP_PLAIN: Final = 128 * MIB
ZIP_PLAIN_RATIO: Final = 128
"""What all files inside a RocksDB snapshot unpack to: never more than the first; the large ones are
stored next to it. It is :data:`ZIP_METADATA_FLOOR`, or so many times the snapshot if that is
larger: options repeat themselves for each column family, and shrink by about 100."""

LARGEST_KEPT_ZIP: Final = MIB // 16
MOST_KEPT_ZIPS: Final = 16
"""What such a snapshot says is asked several times, and each time all of it is unpacked. For as
many of the last ones as that, none of them larger than the first, it is remembered, and which files
it names also for the last one that is larger."""

MOST_MISSING_NAMED: Final = 100
"""Missing files of one snapshot, or partitions of one checkpoint, that are named one by one."""

MOST_ABSENT_STORES: Final = 1_000
"""State stores of a directory that are searched for although they have no folder."""

MOST_STORE_NAMES: Final = 100
"""Stores of one operator in each partition. A join has four."""

STATE_PATIENCE: Final = 120
STATE_BYTES_PER_SECOND_BY_THE_CLOCK: Final = MIB // 4
"""How many seconds by the clock Spark may take for the rows of an operator's state, and one more
for so many bytes of its files."""

LARGEST_ENTRY: Final = 10**12
"""No log of Spark has an entry with a higher number."""

REPEATED_FLOOR: Final = 128 * MIB
REPEATED_RATIO: Final = 16
"""Compactions of sources' logs in one plan repeat no more characters than the floor, or this many
times all lines of those logs if that is larger."""

TRYING_SECONDS: Final = 0.8
"""Processor time for finding the batches that a directory can be rolled back to, the newest first.
Trying one goes through all files; Spark keeps about 100 batches."""

# documents

LONGEST_PREFIX: Final = 200
"""A name that is put before the names of all members below it. What is below a longer one is shown
and compared as one value."""

LARGEST_PREFIXES: Final = 16 * MIB
"""Characters of all such names in one position, repeated as often as there are members."""

LONGEST_REASON: Final = 1_000
"""Characters of what is wrong with one thing, where that is told of everything that needs it."""

LONGEST_LIST: Final = 20_000
"""Characters of all that is wrong with the partitions of one checkpoint."""

LONGEST_ERROR: Final = 40_000
"""Characters of one part of an error that ends a command: it may repeat a name of any length."""

LONGEST_TOPIC: Final = 249
"""No topic of Kafka has a longer name."""

MOST_VALUES: Final = 500_000
"""Values in one JSON text of Spark's; a pack of some kilobytes may hold millions."""

BYTES_PER_LINE: Final = 32
"""A log's entry may have :data:`RECORDS_FLOOR` lines, and one more for each of these bytes."""

MOST_POSITIONS: Final = 10_000
"""Positions of sources that a command prints one by one. JSON has all of them."""

MOST_WARNINGS: Final = 1_000
"""Warnings that a command prints one by one; the rest as a number. JSON has all of them."""

# packs of a StateStore

PACK_FLOOR: Final = 32 * MIB
PACK_RATIO: Final = 64
"""An entry of a pack above the floor is stored as it is when it would shrink by more than this."""

BATCH_FLOOR: Final = 64 * MIB
"""The same for a batch of version 1 or 2 as a whole, by :data:`PACK_RATIO`. LaminarDB flushes its
batches at 8 MiB, and means them to have 32 MB at most. All parts of an epoch together unpack to no
more than the floor and this ratio of their stored size."""

READ_AHEAD: Final = 64 * MIB
"""Bytes of partitions that a restore reads ahead of its caller."""

CHAIN_FLOOR: Final = 64 * MIB
"""What all packs of a checkpoint and of those it builds on may unpack to, or
:data:`PACK_RATIO` times their stored size if that is larger."""

LARGEST_PACK: Final = 512 * MIB
"""A pack of small files as a shared object. Seamark starts a new one long before."""

LARGEST_PACK_INDEX: Final = 64 * MIB
"""The index of a pack that is read without the rest."""

INDEX_FLOOR: Final = 256 << 10
INDEX_RATIO: Final = 16
"""The index of a checkpoint's files unpacks to no more than the floor, or this many times its
stored size if that is larger. More than half of it are hashes, which do not shrink; one that would
shrink by more is stored as it is."""

ONE_AT_A_TIME: Final = 64 * MIB
"""Larger packs are not held in memory beside each other."""

MOST_DAMAGED_STATES: Final = 100
"""Damaged state checkpoints in front of the whole ones that a prune looks at."""

# files of a checkpoint

LONGEST_NAME: Final = 255
"""Bytes in the name of a file or folder."""

LONGEST_PATH: Final = 4096
"""Characters of a path on a local disk that is followed; Linux opens no longer one."""

MOST_FOLDERS: Final = 128
"""Folders that lead to a file of a checkpoint. Spark needs about six."""

FOLDERS_FLOOR: Final = 100_000
FOLDERS_PER_FILE: Final = 8
"""A checkpoint directory may have the floor of folders, or so many for each file if those are more.
An object store has folders by the names of objects alone, which may be very deep."""

MOST_OPERATORS: Final = 1_000
"""Stateful operators of one query."""

MOST_COPIES: Final = 64
"""Files that one stored file may be restored to: operators that have gone on from one state."""

# stores

MOST_LEVELS: Final = 16
"""Levels of folders in a store; what lies deeper is not of Seamark's. There are three."""

LARGEST_GENERATION: Final = 2**53
"""Claims of one store. A higher number would leave no room to count further."""

MOST_TOMBSTONES: Final = 10_000
"""Tombstones that ``owner.json`` may name. A store has one or two."""

MOST_SUPERSEDED_RANGES: Final = 10_000
"""Ranges that rollbacks have taken out of use since the last prune."""

MOST_PINS: Final = 10_000
MOST_OWNER_IDS: Final = 100_000
"""Pins, and ids of any other kind, that ``owner.json`` may name. It is read very often."""

MOST_LINKS_IN_VAIN: Final = 20_000
"""Checkpoints that ``bisect`` goes through, chains of parents and all, for restores that fail."""

LARGEST_SHOWN: Final = 16 * MIB
"""A range of a sidecar that is read as a whole only to list the files in it, and all positions of a
progress store that are shown."""

MOST_SHOWN_VALUES: Final = 500_000
"""Values in all these positions. RocksDB packs millions of them into some megabytes."""

ANSWER_SECONDS: Final = 60.0
LARGEST_ANSWER: Final = 2 * MIB
MOST_ANSWERS: Final = 20
"""What an S3 service may answer to a question about its unfinished uploads: all answers together
in that time. S3 lists 1000 uploads at a time."""

MOST_SILENT_SERVERS: Final = 8
"""Kafka's servers that do not answer to ``sources --check``, after which no others are asked."""

# forks

MOST_ORIGIN_TARGETS: Final = 1_000
LONGEST_TARGET: Final = 10_000
"""Sinks of earlier pipelines that a fork stays away from, and characters in the target of one."""

# tables of Delta and Iceberg

LARGEST_TABLE_FILE: Final = 256 * MIB
"""A file of a table's log."""

TABLE_TEXT_FLOOR: Final = 4 * MIB
"""A zipped file of a table's log unpacks to no more than the floor, or :data:`UNPACKED_RATIO` times
its size if that is larger, and never to more than a plain one may have."""

BYTES_PER_TABLE_VALUE: Final = 2
"""A metadata file of an Iceberg table may hold :data:`RECORDS_FLOOR` values, and one more for each
of these stored bytes. Iceberg's own have one for four, zipped."""

MOST_TABLE_COMMITS: Final = 100_000
"""Commits of a table that are searched for a query."""

MOST_TABLE_METADATA: Final = 1_000
"""Metadata files of an Iceberg table that are searched for a snapshot. A table keeps 100 of them
unless it is told otherwise."""

MOST_TABLE_CANDIDATES: Final = 10
"""Metadata files of an Iceberg table that may be the current one, and are all read."""

LARGEST_TABLE_CHECKPOINT: Final = 1 << 30
MOST_CHECKPOINT_PARTS: Final = 100
"""A checkpoint of a Delta table's log: bytes and number of its Parquet files."""

CHECKPOINT_MEMORY: Final = 256 * MIB
CHECKPOINT_SECONDS: Final = 2
CHECKPOINT_BYTES_PER_SECOND: Final = 256 * MIB
"""What reading all Parquet files of a checkpoint may take: memory, of which the libraries use about
110 MiB, and processor time after these were loaded, and one more second for so many bytes."""

TABLE_MEMORY: Final = 512 * MIB
TABLE_SECONDS: Final = 20
"""What reading the logs of all Delta tables that a store names may take: memory, the libraries
included, and processor time after these were loaded. ``deltalake`` holds the whole log of a table,
which takes some hundred megabytes and seconds when that has a million files."""

TABLE_PATIENCE: Final = 120
"""Seconds by the clock that a process that reads a table may take."""

TRIED_MEMORY_RATIO: Final = 16
TRIED_BYTES_PER_SECOND: Final = 4 * MIB
TRIED_BYTES_PER_SECOND_BY_THE_CLOCK: Final = MIB
"""What a process that reads the rows of targets that only a store names may take besides: memory
in proportion to its largest file, and time in proportion to all of them."""

TRIED_FLOOR: Final = 1 << 30
TRIED_RATIO: Final = 256
TRIED_ROW: Final = 16
"""What the rows of these targets may unpack to: as much as that, or as many times their files. Each
row counts as no less than the third: Spark keeps an empty one in so many bytes."""

UNTRIED_SECONDS: Final = 20
"""How long by the clock Spark may read some files of which that process cannot tell what they take,
and one more second for each of :data:`TRIED_BYTES_PER_SECOND_BY_THE_CLOCK`."""

DEEPEST_TYPE: Final = 16
MOST_TYPES: Final = 5_000
"""How deeply the types of an output's columns may lie inside each other, and how many there may be,
each one counted once more for every type around it. Spark takes some milliseconds for each of them,
and from about twenty levels on twice as much for every two more."""

# progress

POSITIONS_FLOOR: Final = 4 * MIB
"""What the checkpoints of all sources in a folder of RocksDB may take, or :data:`UNPACKED_RATIO`
times its files if that is larger. Its own compression, Snappy, makes nothing that small."""

MOST_SOURCES: Final = 10_000
LONGEST_SOURCE: Final = 10_000
"""Sources of one progress store or query, and bytes in the id of one. Every session reads all."""

# pipelines

MOST_EPOCHS_AHEAD: Final = 100_000
"""Epochs that a sink may show beyond the newest checkpoint."""
