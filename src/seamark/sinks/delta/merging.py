"""Changes that are merged into a Delta table by keys, in the memory of the driver.

Tests: ``tests/sinks/test_delta_modes.py``.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from seamark._common.arrow_tables import is_readable
from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, RefusedError
from seamark.limits import LONGEST_NAME
from seamark.sinks.delta.actions import StagedFile, partition_text
from seamark.sinks.delta.entries import add_files
from seamark.sinks.delta.place import hooks_after
from seamark.sinks.delta.target import no_value
from seamark.sinks.partition_texts import NULL_FOLDER, reserved_text

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

_AT: Final = "\x00row"
"""No column of a Delta table has this name."""


def read_changes(blobs: Blobs, files: Sequence[StagedFile]) -> pa.Table | None:
    """All changes of an epoch; None when it has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for file in files:
        blob = blobs.read(file.path, file.size)
        if blob is None or len(blob.data) != file.size:
            raise DamageError(f"the staged changes {file.path} are gone or cut", where=blobs.url)
        tables.append(pq.read_table(io.BytesIO(blob.data)))
    return pa.concat_tables(tables) if tables else None


def check_keys(changes: pa.Table, keys: Sequence[str], epoch: int, where: str) -> None:
    """:class:`RefusedError` when an epoch has two rows for one key, or one without a key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for key in keys:
        if changes[key].null_count:
            raise RefusedError(
                f"epoch {epoch} has a row whose key {key!r} is null",
                where=where,
                hint="Two such rows are never equal. Filter them out.",
            )
        if pa.types.is_floating(changes[key].type) and pc.any(pc.is_nan(changes[key])).as_py():
            raise RefusedError(
                f"epoch {epoch} has a row whose key {key!r} is NaN",
                where=where,
                hint="Whether two such rows are equal, no two programs agree. Filter them out.",
            )
    grouped = _numbered(changes, keys).group_by([*keys]).aggregate([(_AT, "list")])
    lists = grouped[f"{_AT}_list"].combine_chunks()
    twice = pc.list_flatten(lists.filter(pc.greater(pc.list_value_length(lists), 1)))
    seen: dict[tuple[Any, ...], str] = {}
    for row in changes.take(twice).to_pylist():
        values = tuple(row[key] for key in keys)
        if seen.setdefault(values, repr(row)) != repr(row):  # NaN is not equal to itself
            shown = ", ".join(f"{key}={row[key]!r}"[:80] for key in keys)
            raise RefusedError(
                f"epoch {epoch} has different rows for the key {shown}",
                where=where,
                hint="Which of them is to stay? Aggregate or deduplicate the output by its keys.",
            )


def refuse_empty_texts(
    changes: pa.Table, names: Collection[str], partitions: Iterable[str], epoch: int, where: str
) -> None:
    """:class:`RefusedError` for an empty text where a partition column needs a value.

    Delta writes it there as null, and others take the text for null that stands for it in Hive.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in partitions:
        is_text = pa.types.is_string(changes[name].type)
        if is_text and pc.any(pc.equal(changes[name], NULL_FOLDER)).as_py():
            raise reserved_text(name, epoch, where)
        if name in names and is_text and pc.any(pc.equal(changes[name], "")).as_py():
            raise no_value(name, epoch, where, is_empty_text=True)


def refuse_spoiled_values(
    changes: pa.Table, partitions: Iterable[str], epoch: int, where: str, *, on_disk: bool
) -> None:
    """:class:`RefusedError` for a value that ``deltalake`` cannot merge.

    That is a text that is not UTF-8. In a partition column it writes a negative decimal as a text
    that nobody can read, and with it the whole table. On a disk it makes a folder of the value,
    whose name may be too long.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in changes.column_names:
        if not is_readable(changes[name]):
            raise RefusedError(
                f"epoch {epoch} has a text in {name!r} that is not UTF-8, which deltalake cannot "
                "merge",
                where=where,
                hint="Mend it in the output with make_valid_utf8(), or write it as binary.",
            )
    for name in partitions:
        column = changes[name]
        is_decimal = pa.types.is_decimal(column.type)
        if is_decimal and pc.any(pc.less(column, pa.scalar(Decimal(0), column.type))).as_py():
            raise RefusedError(
                f"epoch {epoch} has a negative number in the partition column {name!r}, which "
                "deltalake cannot merge",
                where=where,
                hint="Partition the table by another column, or write with mode='append'.",
            )
        may_be_long = pa.types.is_string(column.type) or pa.types.is_floating(column.type)
        for value in pc.unique(column).to_pylist() if on_disk and may_be_long else ():
            if len(_folder(name, value)) > LONGEST_NAME:
                raise RefusedError(
                    f"epoch {epoch} has a value in the partition column {name!r} that is too long "
                    f"for the name of a folder: {str(value)[:80]!r}",
                    where=where,
                    hint="Partition the table by another column, or write with mode='append'.",
                )


def _folder(name: str, value: Any) -> bytes:
    """The name of the folder that ``deltalake`` puts a partition into."""
    is_number = isinstance(value, float) and math.isfinite(value)
    text = f"{Decimal(repr(value)):f}" if is_number else partition_text(value)
    return f"{name}=".encode() + quote(text or "", safe="").encode()


def check_required(
    changes: pa.Table, required: Iterable[str], delete_where: str | None, epoch: int, where: str
) -> None:
    """:class:`RefusedError` when a row that stays lacks a value that the table demands."""
    import pyarrow.compute as pc

    if delete_where is not None:
        changes = changes.filter(pc.invert(pc.fill_null(changes[delete_where], False)))
    for name in sorted(required):
        if changes[name].null_count:
            raise no_value(name, epoch, where)


def merge(
    table: DeltaTable,
    changes: pa.Table,
    keys: Sequence[str],
    columns: Sequence[str],
    delete_where: str | None,
    properties: CommitProperties,
) -> None:
    """Merge the changes in one entry of the log, also when they change nothing."""
    before = table.version()
    predicate = " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in keys)
    merger = table.merge(
        _one_for_each_key(changes, keys),
        predicate,
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
        post_commithook_properties=hooks_after(before),
    )
    values = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
    stays = None
    if delete_where is not None:
        goes = f"coalesce(s.{_quoted(delete_where)}, false)"
        merger = merger.when_matched_delete(goes)
        stays = f"NOT {goes}"
    merger.when_matched_update(values).when_not_matched_insert(values, stays).execute()
    if table.version() == before:  # deltalake has written no entry, since no row changes
        properties.max_commit_retries = 0  # others may add rows with these keys meanwhile
        add_files(table, (), "append", properties)


def _one_for_each_key(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows of one key are equal, or they would have been refused."""
    grouped = _numbered(changes, keys).group_by([*keys]).aggregate([(_AT, "min")])
    is_plain = grouped.num_rows == changes.num_rows
    return changes if is_plain else changes.take(grouped[f"{_AT}_min"])


def _numbered(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The keys of each row, and its number; ``-0.0`` is ``0.0``, as it is to a merge."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.add(changes[key], pa.scalar(0.0, changes[key].type))
        if pa.types.is_floating(changes[key].type)
        else changes[key]
        for key in keys
    ]
    numbers = pa.array(range(changes.num_rows))
    return pa.table([*columns, numbers], names=[*keys, _AT])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
