"""The staged rows of one epoch of a live view: read back, and made one per key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seamark.errors import RefusedError
from seamark.sinks.keyvalue.view_columns import DELETED, KEY, RANK, TIME, VALUE

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Rows:
    """What an epoch writes: at most one thing for a key."""

    upserts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: frozenset[bytes] = frozenset()
    times: dict[bytes, int] = field(default_factory=dict)
    """When an upserted row expires, in milliseconds; without an entry it never does."""
    size: int = 0


def load_rows(folder: str, watermark: int | None = None) -> Rows:
    """Read what was staged in a folder. :class:`RefusedError` when it cannot become a view.

    Rows that come too late are left out first: none of them may decide about a key.
    """
    table = _table(folder)
    if table is None or table.num_rows == 0:
        return Rows()
    if table[KEY].null_count:
        raise RefusedError(
            f"{table[KEY].null_count} rows have no key: a column of it is null",
            hint="Leave them out with where(), or give them one with coalesce().",
        )
    if watermark is not None and TIME in table.column_names:
        table = _without_late(table, watermark)
    keys = table[KEY].to_pylist()
    values = table[VALUE].to_pylist()
    size = table[KEY].nbytes + table[VALUE].nbytes
    deleted = table[DELETED].to_pylist() if DELETED in table.column_names else None
    times = table[TIME].to_pylist() if TIME in table.column_names else None
    upserts = dict(zip(keys, values, strict=True))
    if len(upserts) == len(keys) and deleted is None:
        return Rows(upserts, frozenset(), _times(keys, times), size)
    flags = deleted or [False] * len(keys)
    order = range(len(keys)) if len(upserts) == len(keys) else _in_order(table, keys, values, flags)
    last = {keys[row]: row for row in order}
    kept = [row for row in last.values() if not flags[row]]
    return Rows(
        {keys[row]: values[row] for row in kept},
        frozenset(key for key, row in last.items() if flags[row]),
        _times([keys[row] for row in kept], [times[row] for row in kept] if times else None),
        size,
    )


def _table(folder: str) -> pa.Table | None:
    import pyarrow as pa
    from pyarrow import parquet

    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet"))
    if not names:
        return None
    return pa.concat_tables([parquet.read_table(f"{folder}/{name}") for name in names])


def _without_late(table: pa.Table, watermark: int) -> pa.Table:
    from pyarrow import compute

    times = table[TIME]
    kept = compute.or_kleene(compute.is_null(times), compute.greater(times, watermark))
    return table.filter(kept)


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
