"""Records that wait for their commit, in Parquet files: looked over, and read back one by one.

Whatever a broker could refuse about a record must be found before the epoch is decided: its size,
its partition, its topic, a missing key in a compacted topic.

Whoever can write to the folder has rows sent with the user's login, so a file decides nothing that
the sink leaves to no column: a key, topic, partition or headers that were not declared are damage.

Tests: ``tests/sinks/test_kafka_records.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from seamark._common.arrow_tables import is_readable, sized_tables
from seamark._common.os_errors import translate_os_errors
from seamark._common.text import shortened
from seamark.errors import DamageError, RefusedError
from seamark.limits import LONGEST_REASON, MIB
from seamark.sinks.epoch_folder import StoredFile
from seamark.sinks.kafka.columns import HEADERS, KEY, PARTITION, TOPIC, VALUE, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_OVERHEAD: Final = 100
"""Bytes of a record and its batch besides key, value and headers, at most."""
_HEADER_OVERHEAD: Final = 10
_ROWS: Final = 20_000
_BYTES: Final = 8 * MIB
_ROWS_AT_ONCE: Final = 128
"""Rows that are unpacked before their size is known: a file has equal ones only once."""
DEFAULT_LIMIT: Final = 1_048_588
"""``max.message.bytes`` of a topic where nobody has changed it."""

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Records:
    """Some records, by columns. None stands for a column that there is not."""

    values: list[bytes | None]
    keys: list[bytes | None]
    topics: list[str] | None
    partitions: list[int] | None
    """-1 leaves it to the key."""
    headers: list[Headers | None] | None


@dataclass(frozen=True)
class TopicShare:
    """What an epoch has for one topic."""

    rows: int = 0
    largest: int = 0
    """Bytes of its largest record."""
    lowest_partition: int = 0
    highest_partition: int = -1
    without_key: int = 0

    def and_(self, other: TopicShare) -> TopicShare:
        """Both together."""
        return TopicShare(
            self.rows + other.rows,
            max(self.largest, other.largest),
            min(self.lowest_partition, other.lowest_partition),
            max(self.highest_partition, other.highest_partition),
            self.without_key + other.without_key,
        )


@dataclass(frozen=True)
class TopicFacts:
    """What a cluster says about a topic."""

    partitions: int
    limit: int = DEFAULT_LIMIT
    """Bytes of its largest batch of records."""
    is_compacted: bool = False


def look_over(
    paths: Iterable[str], topic: str | None, columns: RecordColumns
) -> dict[str, TopicShare]:
    """What staged files hold for each topic.

    :class:`RefusedError` for a row without a topic, and :class:`DamageError` for a file with
    columns that the sink does not declare.
    """
    shares: dict[str, TopicShare] = {}
    for path in paths:
        for batch in _batches(path, columns):
            for name, share in _shares(batch, topic).items():
                shares[name] = shares.get(name, TopicShare()).and_(share)
    return shares


def check_shares(
    shares: Mapping[str, TopicShare], topics: Mapping[str, TopicFacts], where: str
) -> None:
    """:class:`RefusedError` names the first topic that would not take its records."""
    for name, share in sorted(shares.items()):
        facts = topics.get(name)
        if facts is None:
            raise RefusedError(
                f"the output has rows for the topic {name!r}, which does not exist",
                where=where,
                hint="Create it, or give create_partitions= to have missing topics created.",
            )
        if share.largest > facts.limit:
            raise RefusedError(
                f"a record has {share.largest} bytes, and the topic {name!r} takes at most "
                f"{facts.limit}",
                where=where,
                hint="Nothing was written. Raise max.message.bytes of the topic, or make the rows "
                "smaller; then start again.",
            )
        highest = max(share.highest_partition, -share.lowest_partition)
        if share.lowest_partition < 0 or share.highest_partition >= facts.partitions:
            raise RefusedError(
                f"a row is for partition {highest if share.lowest_partition >= 0 else -highest}, "
                f"and the topic {name!r} has {facts.partitions}",
                where=where,
                hint=f"Partitions are numbered from 0 to {facts.partitions - 1}; null leaves it "
                "to the key.",
            )
        if share.without_key and facts.is_compacted:
            raise RefusedError(
                f"{share.without_key} rows have no key, and the topic {name!r} is compacted",
                where=where,
                hint="Give key=, or filter out the rows whose key is null.",
            )


def require_topics(
    found: Iterable[str], topic: str | None, prepared: Collection[str], where: str
) -> None:
    """:class:`DamageError` when rows are for other topics than were looked at when prepared.

    ``topic`` is always looked at, also for an epoch that has no row for it.
    """
    own = set() if topic is None else {topic}
    if {*found} | own != {*prepared} | own:
        raise DamageError(
            f"the staged rows are for the topics {_named(found)}, and the checkpoint names "
            f"{_named(prepared)}",
            where=where,
            hint="Nothing was sent. Restore the folder from a copy, or roll the pipeline back to "
            "the epoch before.",
        )


def _named(topics: Iterable[str]) -> str:
    """Names for people; a file may hold more, and longer ones, than anybody can read."""
    return shortened(", ".join(repr(name) for name in sorted(topics)), LONGEST_REASON) or "none"


def records_in(
    paths: Iterable[str], topic: str | None, columns: RecordColumns
) -> Iterator[Records]:
    """The records of staged files, in the order in which they were written.

    :class:`DamageError` for a file with columns that the sink does not declare.
    """
    for path in paths:
        for batch in _batches(path, columns):
            yield _records(batch, topic)


def shares_of_files(files: Sequence[StoredFile], shards: int) -> list[list[str]]:
    """Which files each shard sends, of about the same size together. Pure.

    A file is never split: its rows keep their order.
    """
    loads = [0] * shards
    shares: list[list[str]] = [[] for _ in range(shards)]
    for file in sorted(files, key=lambda file: (-file.size, file.name)):
        least = loads.index(min(loads))
        loads[least] += file.size
        shares[least].append(file.name)
    return [sorted(share) for share in shares]


def _batches(path: str, columns: RecordColumns) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with _opened(path) as file:
        parquet = pq.ParquetFile(file)
        _require_declared(parquet.schema_arrow.names, columns, path)
        for table in sized_tables(parquet.iter_batches(_ROWS_AT_ONCE), _ROWS, _BYTES):
            yield from table.combine_chunks().to_batches()


def _opened(path: str) -> BinaryIO:
    """:class:`DamageError` when the file is gone, as after a commit by another process."""
    with translate_os_errors("reading", path):
        try:
            return open(path, "rb")
        except FileNotFoundError:
            raise DamageError(
                "staged rows are gone that were there a moment ago",
                where=path,
                hint="Restore the folder from a copy, or roll the pipeline back to the epoch "
                "before.",
            ) from None


def _require_declared(names: Sequence[str], columns: RecordColumns, path: str) -> None:
    others = sorted({*names} - columns.staged_names)
    if others or VALUE not in names or len({*names}) < len(names):
        raise DamageError(
            f"the staged rows have columns that the sink does not declare: {_named(others)}"
            if others
            else "the staged rows do not have the columns of records",
            where=path,
            hint="Nothing of this file was sent. If the sink had other columns for key, "
            "headers, partition or topic when the epoch was prepared, start once with those; else "
            "restore the folder from a copy, or roll the pipeline back to the epoch before.",
        )


def _records(batch: pa.RecordBatch, topic: str | None) -> Records:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    there = {name: column.to_pylist() for name, column in columns.items()}
    topics, partitions, headers = (there.get(name) for name in (TOPIC, PARTITION, HEADERS))
    return Records(
        values=there[VALUE],
        keys=there.get(KEY) or [None] * batch.num_rows,
        topics=None if topics is None else [one or topic or "" for one in topics],
        partitions=None if partitions is None else [-1 if p is None else p for p in partitions],
        headers=None if headers is None else [_headers(one) for one in headers],
    )


def _headers(given: list[dict[str, Any] | None] | None) -> Headers | None:
    return [(one["key"], one["value"]) for one in given if one is not None] if given else None


def _shares(batch: pa.RecordBatch, topic: str | None) -> dict[str, TopicShare]:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches([batch])
    if table.num_rows == 0:
        return {}
    sizes = pa.chunked_array([_sizes(batch)])
    has = set(table.column_names)
    if TOPIC in has:
        _require_utf8(table[TOPIC], "a topic")
    nothing = pa.nulls(table.num_rows, pa.int32())
    facts = pa.table(
        {
            "topic": table[TOPIC] if TOPIC in has else pa.array([topic] * table.num_rows),
            "size": sizes,
            "partition": table[PARTITION] if PARTITION in has else nothing,
            "without_key": pc.cast(pc.is_null(table[KEY]), pa.int64())
            if KEY in has
            else pa.array([1] * table.num_rows),
        }
    )
    if topic is not None:
        facts = facts.set_column(0, "topic", pc.fill_null(facts["topic"], topic))
    elif facts["topic"].null_count:
        raise RefusedError(
            "a row has no topic: its topic column is null",
            hint="Give topic= for such rows, or filter them out.",
        )
    if HEADERS in has:
        _refuse_unfit_headers(table)
    measures = [("size", "max"), ("size", "count"), ("without_key", "sum")]
    grouped = facts.group_by("topic").aggregate(
        [*measures, ("partition", "min"), ("partition", "max")]
    )
    return {row["topic"]: _share(row) for row in grouped.to_pylist()}


def _share(row: Mapping[str, Any]) -> TopicShare:
    share = TopicShare(row["size_count"], row["size_max"], without_key=row["without_key_sum"])
    if row["partition_max"] is None:
        return share
    lowest = min(row["partition_min"], 0)
    return replace(share, lowest_partition=lowest, highest_partition=row["partition_max"])


def _sizes(batch: pa.RecordBatch) -> Any:
    """Bytes of each record, at most."""
    import numpy as np
    import pyarrow.compute as pc

    total = np.full(batch.num_rows, RECORD_OVERHEAD, dtype=np.int64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in (KEY, VALUE):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        elif name == HEADERS:
            total += _header_sizes(column)
    import pyarrow as pa

    return pa.array(total)


def _header_sizes(column: Any) -> Any:
    import numpy as np
    import pyarrow.compute as pc

    each = column.flatten()
    lengths = np.full(len(each), _HEADER_OVERHEAD, dtype=np.int64)
    for name in ("key", "value"):
        bytes_of = pc.binary_length(pc.struct_field(each, name))
        lengths += pc.fill_null(bytes_of, 0).to_numpy(zero_copy_only=False)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(counts)))
    sums = np.concatenate(([0], np.cumsum(lengths)))
    return sums[ends[1:]] - sums[ends[:-1]]


def _refuse_unfit_headers(table: pa.Table) -> None:
    """Headers that Kafka's client cannot send: nothing of a decided epoch may be one."""
    import pyarrow.compute as pc

    for chunk in table[HEADERS].chunks:
        each = chunk.flatten()
        names = pc.struct_field(each, "key")
        if each.null_count or names.null_count:
            raise RefusedError(
                "a header of a row is null, or has no key",
                hint="Every element of the headers column needs a key that is not null: "
                "filter(headers, h -> h.key IS NOT NULL).",
            )
        _require_utf8(names, "the key of a header")
        if pc.any(pc.match_substring(names, "\0")).as_py():
            raise RefusedError(
                "the key of a header has a zero byte, at which Kafka's client would cut it off",
                hint="Leave it out in the output: translate(key, '\\0', '').",
            )


def _require_utf8(texts: pa.Array | pa.ChunkedArray, what: str) -> None:
    if not is_readable(texts):
        raise RefusedError(
            f"{what} is not UTF-8, and Kafka takes no other",
            hint="Mend it in the output with make_valid_utf8(), or filter such rows out.",
        )
