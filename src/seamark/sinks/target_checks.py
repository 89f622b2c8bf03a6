"""What a file sink checks before the first row: whose folder it is, and what it can hold.

A folder belongs to one output of one pipeline.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.files import require_no_link
from seamark._common.json_documents import UNREADABLE, seal, unseal
from seamark._common.os_errors import translate_os_errors
from seamark.blobs.contract import KeyExists
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import DamageError, RefusedError
from seamark.sinks.epoch_folder import epoch_of
from seamark.sinks.epoch_ranges import RANGE_COLUMN, range_end_of
from seamark.sinks.folders import is_hidden, is_there, names_in
from seamark.sinks.json_texts import has_unnamed_keys

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

TARGET: Final = "sink.json"
_LIMIT: Final = 1 << 20
_OTHER_TABLES: Final = {
    "_spark_metadata": "Spark's own file sink wrote here, and Spark reads only what that one lists",
    "_delta_log": "it is a Delta table, and readers of Delta do not see other files",
    ".hoodie": "it is a Hudi table, and readers of Hudi do not see other files",
}
_OF_SINKS: Final = {
    f"_seamark/{TARGET}": "where readers of another FileSink would see them",
    "_delta_log": "a Delta table, and a vacuum of it may remove them",
}
EPOCH_COLUMN: Final = "epoch"


class Target(msgspec.Struct, frozen=True):
    """What a folder is for."""

    pipeline: str
    sink: str
    format: str
    partition_by: tuple[str, ...]
    version: int = 1
    epochs_per_folder: int | None = None


def check_folder(path: str, ours: Target) -> None:
    """:class:`RefusedError` when a folder cannot be claimed; it is not made here."""
    with translate_os_errors("listing", path):
        refuse_strangers(path, names_in(path))
    require_no_link(f"{path}/_seamark")
    blob = FilesystemBlobs(f"{path}/_seamark").read(TARGET, _LIMIT)
    if blob is not None:
        require_same_target(blob.data, ours, path)
    else:
        refuse_inside(path)


def claim_folder(
    path: str,
    pipeline: str,
    sink: str,
    file_format: str,
    partition_by: Sequence[str],
    epochs_per_folder: int | None = None,
) -> None:
    """Make the folder, durably, and note whose it is.

    :class:`RefusedError` when it belongs to somebody else, or holds what readers would mix up.
    """
    with translate_os_errors("listing", path):
        refuse_strangers(path, names_in(path))
    ours = Target(
        pipeline, sink, file_format, (*partition_by,), epochs_per_folder=epochs_per_folder
    )
    require_no_link(f"{path}/_seamark")
    blobs = FilesystemBlobs(f"{path}/_seamark")
    try:
        blobs.create(TARGET, encoded_target(ours))
    except KeyExists:
        blob = blobs.read(TARGET, _LIMIT)
        require_same_target(blob.data if blob else b"", ours, path)


def encoded_target(target: Target) -> bytes:
    """The note of what a folder is for, as it is stored."""
    return seal(msgspec.json.encode(target))


def require_same_target(data: bytes, ours: Target, path: str) -> None:
    """:class:`RefusedError` when the folder is for something else, by the note that is there."""
    stored = _decoded(data, path)
    if stored != ours:
        raise _refusal(stored, ours, path)


def refuse_strangers(path: str, names: Sequence[str]) -> None:
    """:class:`RefusedError` when a folder holds what readers would mix up with the epochs."""
    for name, reason in _OTHER_TABLES.items():
        if name in names:
            raise RefusedError(
                f"{path} cannot take the files of a FileSink: {reason}",
                hint="Give it a folder of its own.",
            )
    visible = (name for name in names if not name.startswith((".", "_")))
    ours = (epoch_of, range_end_of)
    stranger = next((name for name in visible if not any(of(name) for of in ours)), None)
    if stranger is not None:
        raise RefusedError(
            f"{path} holds {stranger!r}, which readers would mix up with the epochs",
            hint="Give the FileSink an empty folder, or one that it has written before.",
        )


def refuse_inside(path: str) -> None:
    """:class:`RefusedError` for a new folder inside of another sink's, of this pipeline or not."""
    real = Path(os.path.realpath(path))
    with translate_os_errors("looking above", path):
        for above, (name, what) in product(real.parents, _OF_SINKS.items()):
            if not is_hidden(real.relative_to(above).parts) and is_there(f"{above}/{name}"):
                raise RefusedError(
                    f"{path} cannot take the files of a FileSink: it is inside of {above}, {what}",
                    hint="Give it a folder of its own.",
                )


def _decoded(data: bytes, path: str) -> Target:
    try:
        return msgspec.json.decode(unseal(data), type=Target)
    except (DamageError, *UNREADABLE) as error:
        raise DamageError(
            f"{path}/_seamark/{TARGET} is damaged: {error}",
            hint="It only says whose folder this is: remove it when you are sure, and start again.",
        ) from error


def _refusal(stored: Target, ours: Target, path: str) -> RefusedError:
    if (stored.pipeline, stored.sink) != (ours.pipeline, ours.sink):
        return RefusedError(
            f"the folder belongs to the output {stored.sink!r} of the pipeline {stored.pipeline!r}",
            where=path,
            hint=f"Give {ours.sink!r} of {ours.pipeline!r} a folder of its own.",
        )
    if stored.format != ours.format:
        return RefusedError(
            f"the folder holds {stored.format}, and {ours.format} next to it could not be read",
            where=path,
            hint="Keep the format, or write to a new folder.",
        )
    if stored.partition_by != ours.partition_by:
        was, is_now = (", ".join(one.partition_by) or "nothing" for one in (stored, ours))
        return RefusedError(
            f"the folder is partitioned by {was}, not by {is_now}: readers refuse a mixture",
            where=path,
            hint="Keep partition_by, or write to a new folder.",
        )
    if stored.epochs_per_folder != ours.epochs_per_folder:
        was, is_now = (str(one.epochs_per_folder) for one in (stored, ours))
        return RefusedError(
            f"the folder has been written with epochs_per_folder {was}, not {is_now}: readers "
            "refuse a mixture",
            where=path,
            hint="Keep epochs_per_folder, or write to a new folder.",
        )
    return RefusedError(
        "the folder was set up by a newer Seamark", where=path, hint="Update this one."
    )


def check_schema(
    schema: StructType, file_format: str, partition_by: Sequence[str], *, in_ranges: bool = False
) -> None:
    """:class:`RefusedError` when these columns cannot be written, or not be read again."""
    names = [field.name for field in schema.fields]
    _check_names(names, in_ranges=in_ranges)
    _check_partitions(schema.fields, partition_by)
    for field in schema.fields:
        if not _can_hold(field.dataType, file_format):
            raise RefusedError(
                f"{file_format} has no way to hold the column {field.name!r} "
                f"({field.dataType.simpleString()})",
                hint="Write parquet, or turn the column into text first, for example with to_json.",
            )


def _check_names(names: list[str], *, in_ranges: bool) -> None:
    for name in names:
        if in_ranges and name.lower() == RANGE_COLUMN:
            raise RefusedError(
                f"the column {name!r} would clash with the last epoch of a range: with "
                f"epochs_per_folder readers add a column {RANGE_COLUMN!r}",
                hint=f'Rename it: df.withColumnRenamed("{name}", "until").',
            )
        if name.lower() == EPOCH_COLUMN:
            raise RefusedError(
                f"the column {name!r} would clash with the epoch's number: readers add a column "
                f"{EPOCH_COLUMN!r} from the names of the folders",
                hint=f'Rename it: df.withColumnRenamed("{name}", "event_epoch").',
            )
    twice = [name for name, count in Counter(map(str.lower, names)).items() if count > 1]
    if twice:
        raise RefusedError(
            f"several columns have one name, capitals aside: {', '.join(sorted(twice))}",
            hint="Give each its own name with alias() or toDF().",
        )


def _check_partitions(fields: Sequence[StructField], partition_by: Sequence[str]) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    there = {field.name.lower(): field for field in fields}
    for name in partition_by:
        field = there.get(name.lower())
        if field is None:
            raise RefusedError(
                f"there is no column {name!r} to partition by",
                hint=f"The columns are {', '.join(field.name for field in fields)}.",
            )
        if name.startswith(("_", ".")):
            raise RefusedError(
                f"a folder for the column {name!r} begins with {name[0]!r}, and readers skip such",
                hint=f'Rename it: df.withColumnRenamed("{name}", "{name.lstrip("_.") or "x"}").',
            )
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            raise RefusedError(
                f"the column {name!r} is a {field.dataType.typeName()}, which cannot be the name "
                "of a folder",
                hint="Partition by a column of numbers, dates or short texts.",
            )
    if partition_by and len(partition_by) == len(there):
        raise RefusedError(
            "no column is left for the files when all are partitions",
            hint="Leave at least one column out of partition_by.",
        )


def _can_hold(kind: DataType, file_format: str) -> bool:
    from pyspark.sql.types import ArrayType, BinaryType, MapType, NullType, StructType

    if isinstance(kind, NullType):
        return file_format == "json"
    if file_format == "csv":
        return not isinstance(kind, ArrayType | MapType | StructType | BinaryType)
    return file_format != "json" or not has_unnamed_keys(kind)
