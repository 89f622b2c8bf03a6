"""The staged rows of one epoch of a live view: read back, and made one per key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import RefusedError
from seamark.sinks.keyvalue.view_columns import DELETED, KEY, RANK, TIME, VALUE

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE: Final = 1 << 9
"""Rows that are read at once: a small file may hold very long values."""


@dataclass(frozen=True)
class Rows:
    """What an epoch writes: at most one thing for a key."""

    upserts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: frozenset[bytes] = frozenset()
    times: dict[bytes, int] = field(default_factory=dict)
    """When an upserted row expires, in milliseconds; without an entry it never does."""
    size: int = 0
    late: int = 0
    """Rows that were left out because their time had come before."""


class NoRoom(Exception):
    """The rows have more bytes than they may. Not all of them were read."""


def load_rows(folder: str, watermark: int | None = None, most: int | None = None) -> Rows:
    """Read what was staged in a folder. :class:`RefusedError` when it cannot become a view.

    Rows that come too late are left out first: none of them may decide about a key. Keys and values
    of more than ``most`` bytes are not held in memory: :class:`NoRoom`.
    """
    table, late = _table(folder, watermark, most)
    if table is None or table.num_rows == 0:
        return Rows(late=late)
    keys = table[KEY].to_pylist()
    values = table[VALUE].to_pylist()
    size = _size(table)
    deleted = table[DELETED].to_pylist() if DELETED in table.column_names else None
    times = table[TIME].to_pylist() if TIME in table.column_names else None
    upserts = dict(zip(keys, values, strict=True))
    if len(upserts) == len(keys) and deleted is None:
        return Rows(upserts, frozenset(), _times(keys, times), size, late)
    flags = deleted or [False] * len(keys)
    order = range(len(keys)) if len(upserts) == len(keys) else _in_order(table, keys, values, flags)
    last = {keys[row]: row for row in order}
    kept = [row for row in last.values() if not flags[row]]
    return Rows(
        {keys[row]: values[row] for row in kept},
        frozenset(key for key, row in last.items() if flags[row]),
        _times([keys[row] for row in kept], [times[row] for row in kept] if times else None),
        size,
        late,
    )


def _table(folder: str, watermark: int | None, most: int | None) -> tuple[pa.Table | None, int]:
    """The rows that are not late, and how many are."""
    import pyarrow as pa

    tables: list[pa.Table] = []
    size = without_key = late = 0
    for batch in _batches(folder):
        without_key += batch[KEY].null_count
        rows = pa.Table.from_batches([_without_late(batch, watermark)])
        late += batch.num_rows - rows.num_rows
        size += _size(rows)
        if most is not None and size > most:
            raise NoRoom
        tables.append(rows)
    if without_key:
        raise RefusedError(
            f"{without_key} rows have no key: a column of it is null",
            hint="Leave them out with where(), or give them one with coalesce().",
        )
    return pa.concat_tables(tables) if tables else None, late


def _batches(folder: str) -> Iterator[pa.RecordBatch]:
    from pyarrow.parquet import ParquetFile

    for name in sorted(name for name in os.listdir(folder) if name.endswith(".parquet")):
        with ParquetFile(f"{folder}/{name}") as file:
            yield from file.iter_batches(_AT_ONCE)


def _size(rows: pa.Table) -> int:
    return int(rows[KEY].nbytes + rows[VALUE].nbytes)


def _without_late(batch: pa.RecordBatch, watermark: int | None) -> pa.RecordBatch:
    from pyarrow import compute

    if watermark is None or TIME not in batch.schema.names:
        return batch
    times = batch[TIME]
    kept = compute.or_kleene(compute.is_null(times), compute.greater(times, watermark))
    return batch.filter(kept)


def _times(keys: list[bytes], times: list[int | None] | None) -> dict[bytes, int]:
    if times is None:
        return {}
    return {key: at for key, at in zip(keys, times, strict=True) if at is not None}


def _in_order(
    table: pa.Table, keys: list[bytes], values: list[bytes], flags: list[bool]
) -> list[int]:
    """The rows so that the last one of a key is the one that counts."""

    def same(one: int, other: int) -> bool:
        both_go = flags[one] and flags[other]
        return both_go or (values[one], flags[one]) == (values[other], flags[other])

    has_ranks = RANK in table.column_names
    ranks = [_rank(value) for value in table[RANK].to_pylist()] if has_ranks else None
    order = list(range(len(keys)))
    if ranks is not None:
        order.sort(key=ranks.__getitem__)
    last: dict[bytes, int] = {}
    tied: dict[bytes, bool] = {}
    for row in order:
        key, before = keys[row], last.get(keys[row])
        is_level = before is not None and (ranks is None or ranks[before] == ranks[row])
        # only a tie with the greatest decides nothing
        tied[key] = before is not None and is_level and (tied[key] or not same(before, row))
        last[key] = row
    for key, is_tied in tied.items():
        if is_tied:
            raise _ambiguous(key, has_order=has_ranks)
    return order


def _rank(value: Any) -> tuple[int, Any]:
    """What to sort by, in Spark's order: null, then the values, then NaN."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)  # noqa: PLR0124 - only NaN is not itself


def _ambiguous(key: bytes, *, has_order: bool) -> RefusedError:
    text = key.decode(errors="replace")[:80]
    if has_order:
        return RefusedError(
            f"an epoch has two different rows for the key {text!r}, with the same order_by",
            hint="Order by something that tells them apart.",
        )
    return RefusedError(
        f"an epoch has two different rows for the key {text!r}",
        hint="Say which one counts with order_by='column' (the greatest does), or aggregate by "
        "the key first.",
    )
