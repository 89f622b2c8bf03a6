"""Which data files of a table hold keys of an epoch, and what is left of them without these.

This is copy-on-write: a file with one such row is read and written again without it, by the driver,
one file at a time. pyiceberg cannot write files of deletes.

Tests: ``tests/sinks/test_iceberg_upserts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import RefusedError
from seamark.sinks.iceberg.data_files import FileWriter
from seamark.sinks.iceberg.kept_nulls import keep_nulls
from seamark.sinks.iceberg.staging import KEYS, Staging

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

    from seamark.sinks.iceberg.snapshots import Change

MOST_KEYS: Final = 5_000_000
REMOVED: Final = "__seamark_removed"
_FEW_VALUES: Final = 200
_ROW: Final = "__seamark_row"


def joined_keys(
    parts: Sequence[bytes], keys: Sequence[str], epoch: int, where: str
) -> bytes | None:
    """The keys of an epoch as one Parquet file; None when it has no rows.

    :class:`RefusedError` for a key that is null or has several rows, and for too many.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not parts:
        return None
    table = pa.concat_tables([pq.read_table(BytesIO(part)) for part in parts])
    if table.num_rows > MOST_KEYS:
        raise RefusedError(
            f"epoch {epoch} has {table.num_rows} rows, and an upsert into Iceberg is made for at "
            f"most {MOST_KEYS}",
            where=where,
            hint="Let epochs be smaller (maxOffsetsPerTrigger, maxFilesPerTrigger), or append.",
        )
    for key in keys:
        if table.column(key).null_count:
            raise RefusedError(
                f"epoch {epoch} has a row whose key {key!r} is null",
                where=where,
                hint="No row could be found again by it. Filter such rows out.",
            )
    counted = table.group_by(list(keys)).aggregate([([], "count_all")])
    twice = counted.filter(pa.compute.greater(counted.column("count_all"), 1)).slice(0, 1)
    if twice.num_rows:
        shown = ", ".join(f"{key}={twice.column(key)[0].as_py()!r}" for key in keys)
        raise RefusedError(
            f"epoch {epoch} has different rows for the key {shown}",
            where=where,
            hint="Which of them is to stay? Aggregate or deduplicate the output by its keys.",
        )
    sink = BytesIO()
    pq.write_table(table.select(list(keys)), sink)
    return sink.getvalue()


def upserted(
    table: Table,
    staging: Staging,
    attempt: str,
    keys: Sequence[str],
    digest: str,
    added: Mapping[int, Sequence[DataFile]],
) -> Change:
    """What a snapshot has to change so that an epoch's keys have the rows of the epoch."""
    import pyarrow.parquet as pq

    from seamark.sinks.iceberg.snapshots import Change

    wanted = pq.read_table(BytesIO(staging.read(attempt, KEYS, digest)))
    replaced: set[str] = set()
    files = {spec: list(own) for spec, own in added.items()}
    writer = FileWriter(table.metadata, staging, attempt)
    for task in table.scan(row_filter=around(wanted, keys)).plan_files():
        rest = _without(table, task, wanted, keys)
        if rest is not None:
            replaced.add(task.file.file_path)
            left = writer.rewrite(rest, task.file)
            files.setdefault(task.file.spec_id, []).extend(left)
    return Change(files, frozenset(replaced))


def around(wanted: pa.Table, keys: Sequence[str]) -> BooleanExpression:
    """A condition that every row with one of the keys meets, cheap to hold against statistics."""
    import pyarrow.compute as pc
    from pyiceberg import expressions

    made: Any = expressions  # its own types do not know how its classes are called
    conditions: list[BooleanExpression] = []
    for key in keys:
        column = wanted.column(key)
        distinct = pc.unique(column)
        if len(distinct) <= _FEW_VALUES:
            conditions.append(made.In(key, set(distinct.to_pylist())))
            continue
        try:
            ends = pc.min_max(column)
        except NotImplementedError:
            continue  # not for every type: then statistics do not help
        conditions.append(made.GreaterThanOrEqual(key, ends["min"].as_py()))
        conditions.append(made.LessThanOrEqual(key, ends["max"].as_py()))
    condition: BooleanExpression = made.AlwaysTrue()
    for one in conditions:
        condition = made.And(condition, one)
    return condition


def _without(
    table: Table, task: FileScanTask, wanted: pa.Table, keys: Sequence[str]
) -> pa.Table | None:
    """The rows of a data file but for those with the keys; None when it has none of them."""
    found = _read(table, task, keys)
    hits = _hits(found, wanted, keys)
    if not hits.num_rows:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = _read(table, task, None)
    gone = pc.is_in(pa.array(range(rows.num_rows), pa.int64()), hits.column(_ROW).combine_chunks())
    return rows.filter(pc.invert(gone))


def _read(table: Table, task: FileScanTask, columns: Sequence[str] | None) -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    keep_nulls()
    schema = table.schema() if columns is None else table.schema().select(*columns)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])


def _hits(found: pa.Table, wanted: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The places of rows that have one of the keys."""
    import pyarrow as pa

    names = list(keys)
    found = found.select(names)
    wanted = wanted.select(names).cast(found.schema.remove_metadata())
    numbered = found.append_column(_ROW, pa.array(range(found.num_rows), pa.int64()))
    return numbered.join(wanted, keys=names, join_type="left semi")
