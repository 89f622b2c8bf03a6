"""Finds out before the first row what a file sink cannot write.

Tests: ``tests/sinks/test_opening.py``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from seamark._common.checks import check_text
from seamark.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

EPOCH_COLUMN: Final = "epoch"
# two letters at least, so that no path of one letter and a colon counts as a URL
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}")


def local_folder(path: str | os.PathLike[str]) -> str:
    """The absolute path of a folder that is given as a path or a file URL.

    :class:`InvalidInputError` for the URL of an object store.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    check_text(text, "a FileSink's path")
    if "\x00" in text or not text:
        raise InvalidInputError("a FileSink's path may not be empty or hold NUL")
    url = _URL.match(text)
    if url is None:
        return os.path.abspath(text)
    if url[1].lower() != "file":
        raise InvalidInputError(
            f"a FileSink cannot write to {url[1]}://, because nothing there can be renamed at once",
            hint="Give it a local or shared file system. For an object store use a table format: a "
            "ForeachBatchSink(fn, idempotent=True) that appends to Delta with txnAppId and "
            "txnVersion, or to Iceberg or Hudi with a key.",
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise InvalidInputError(f"a file URL looks like file:///path, not {text!r}")
    return os.path.abspath(unquote(parts.path))


def check_token(token: str, what: str) -> str:
    """A token that is safe as the name of a folder."""
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        raise InvalidInputError(f"{what} must be a plain name of letters and digits, not {token!r}")
    return token


def check_schema(schema: StructType, file_format: str, partition_by: Sequence[str]) -> None:
    """:class:`RefusedError` when these columns cannot be written, or not be read again."""
    names = [field.name for field in schema.fields]
    _check_names(names)
    _check_partitions(schema.fields, partition_by)
    for field in schema.fields:
        if not _can_hold(field.dataType, file_format):
            raise RefusedError(
                f"{file_format} has no way to hold the column {field.name!r} "
                f"({field.dataType.simpleString()})",
                hint="Write parquet, or turn the column into text first, for example with to_json.",
            )


def _check_names(names: list[str]) -> None:
    for name in names:
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
    return True
