"""What may be merged, and how Spark writes the rows of many small epochs into few files.

Tests: ``tests/sinks/test_compaction_on_spark.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import DamageError, RefusedError
from seamark.manifest.described import described
from seamark.sinks.file_values import refusing_changed, without_changed
from seamark.sinks.target_checks import EPOCH_COLUMN
from seamark.store import CheckpointStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE: Final = 128 << 20
"""Bytes that a merged file has, about."""
_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"
_GLOB: Final = re.compile(r"[{}\[\]*?\\]")
_OF_TEXT: Final = ("encoding", "charset", "linesep")


def require_compactable(
    per_range: int | None, file_format: str, options: Mapping[str, Any], path: str
) -> None:
    """:class:`RefusedError` when the epochs of such a sink cannot be merged."""
    if per_range is None:
        raise RefusedError(
            "epochs can be merged only where they are grouped in folders",
            where=path,
            hint="Write to a new folder with FileSink(path, epochs_per_folder=1000).",
        )
    if file_format == "csv":
        raise RefusedError(
            "csv cannot be merged: a value may have several lines, and a file a header",
            where=path,
            hint="Write parquet.",
        )
    given = [name for name in options if name.lower() in _OF_TEXT]
    if file_format == "json" and given:
        raise RefusedError(
            f"json that is written with {given[0]!r} cannot be merged",
            where=path,
            hint="Write parquet, or json as Spark does by default.",
        )


def oldest_epoch(store: CheckpointStore | str | os.PathLike[str], path: str) -> int:
    """The oldest epoch that a pipeline can be rolled back to; 0 when it has no checkpoint.

    :class:`RefusedError` when the store is of a pipeline that does not write to this folder.
    """
    opened: AbstractContextManager[CheckpointStore]
    opened = nullcontext(store) if isinstance(store, CheckpointStore) else open_store(store)
    with opened as reader:
        newest = reader.load_latest()
        if newest is None:
            return 0
        if path not in [sink.get("target") for sink in described(newest, "sinks").values()]:
            raise RefusedError(
                "the pipeline of this store does not write to this folder",
                where=f"{reader.url}, {path}",
                hint="Give the store of the pipeline that does: it says how far back it can go.",
            )
        return min(epoch for _, epoch in reader.list())


def merge_files(
    spark: SparkSession | None,
    folder: str,
    epochs: Sequence[str],
    target: str,
    *,
    file_format: str,
    partition_by: Sequence[str],
    options: Mapping[str, Any],
    size: int,
) -> None:
    """Write the rows of some epochs of a range into one folder that is not there yet.

    :class:`DamageError` when the copy does not have as many rows.
    """
    from seamark.spark.own_session import a_session

    session = (spark or a_session(imports_from_here=True)).newSession()
    # "01" stays "01", and with it the name of its folder
    session.conf.set(_INFERENCE, "false")
    kind = "text" if file_format == "json" else file_format  # a line of JSON is a row as it is
    rows = _read(session, folder, epochs, kind)
    files = max(1, -(-size // _FILE))
    merged = rows.drop(EPOCH_COLUMN).coalesce(files)
    # a line of text is the same in any session
    writer = (merged if kind == "text" else without_changed(merged, kind)).write
    writer = writer.format(kind).options(**options)
    writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    with refusing_changed(kind, target):
        writer.save(f"file://{target}")
    expected = rows.count()
    written = _read(session, os.path.dirname(target), [target], kind).count()
    if written != expected:
        raise DamageError(
            f"the merged copy has {written} rows instead of {expected}",
            where=target,
            hint="Nothing was changed for readers. Try again.",
        )


def _read(session: SparkSession, base: str, folders: Sequence[str], file_format: str) -> DataFrame:
    reader = session.read.format(file_format).option("basePath", f"file://{base}")
    if file_format in ("parquet", "orc"):
        reader = reader.option("mergeSchema", "true")
    return reader.load([f"file://{_GLOB.sub(_escaped, folder)}" for folder in folders])


def _escaped(match: re.Match[str]) -> str:
    return f"\\{match[0]}"
