"""The rows of a query's state at a batch, and what batches changed, by Spark's own reader."""

from __future__ import annotations

import base64
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Final

from seamark import limits_by_size
from seamark._common.holes import is_hollow
from seamark.capture.batches import newest_committed
from seamark.checkpoint_dir.closures import needs_of
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.schema_paths import require_schemas_inside, with_root
from seamark.checkpoint_dir.state_files import is_state
from seamark.checkpoint_dir.state_references import SNAPSHOT_REPAIR, require_version_inside
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.native.state_choice import FORMAT_VERSION, StateSelection
from seamark.spark.failures import SparkFailure, explained, is_of_spark, out_of_memory, said_by
from seamark.spark.limited_jobs import limited_jobs
from seamark.spark.pinned_settings import require_known_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_NO_SUCH_FILE: Final = re.compile(r"does not exist|NOT_EXISTS|FileNotFound|[Nn]o such file")


@contextmanager
def state_frame(
    spark: SparkSession, files: CheckpointFiles, reading: StateSelection
) -> Iterator[DataFrame]:
    """The rows as a DataFrame; what Spark says against it comes as one of our errors.

    The settings of ``spark`` stay as they are. :class:`RefusedError` when Spark would read a schema
    of another directory, :class:`DamageError` when its log names classes that are not Spark's, its
    state files of another directory, or one of them is mostly a hole;
    :class:`StoreUnavailableError` when Spark takes far longer than for files of that size.
    """
    seconds = limits_by_size.state_seconds(_stored(files, reading.keeper.operator.number))
    require_schemas_inside(files, reading.keeper.operator.number)
    first = reading.batch if reading.changes is None else reading.changes[0]
    logged = [n for n in files.batches("offsets") if first <= n <= reading.batch]
    require_known_settings(files, [*logged, *files.batches("offsets")[-1:]], spark)
    numbers = [reading.keeper.operator.number]
    require_version_inside(files, numbers, reading.batch + 1, spark)
    session = spark.newSession()
    session.conf.set(SNAPSHOT_REPAIR, "false")
    # Spark takes this from the session, also where the directory was written otherwise
    session.conf.set(FORMAT_VERSION, str(reading.format_version))
    try:
        frame = session.read.format("statestore").options(**reading.options).load(files.uri)
        if reading.partition is not None:
            frame = frame.where(frame["partition_id"] == reading.partition)
        with limited_jobs(spark, seconds, lambda: _too_late(seconds, files)):
            yield frame
    except SeamarkError:
        raise
    except Exception as error:
        if not is_of_spark(error):
            raise
        known = explained(error)
        if isinstance(known, StoreUnavailableError):  # a disk is full
            raise known from error
        raise _error_for(said_by(error), files, reading) from error


def _stored(files: CheckpointFiles, operator: int) -> int:
    """Bytes of an operator's files; :class:`DamageError` for one that is mostly a hole.

    Spark copies files of RocksDB to its local disk, and there a hole takes its length.
    """
    root = files.uri.removeprefix("file:")
    found = 0
    for path in files.files_below(f"state/{operator}"):
        if is_hollow(f"{root}/{path}"):
            raise DamageError(
                f"{path} is mostly a hole: little of it is stored",
                where=files.uri,
                hint="It is no file of Spark's. Put it back from a copy of the directory or store.",
            )
        found += files.size(path) or 0
    return found


def _too_late(seconds: int, files: CheckpointFiles) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"Spark has not read the state within {seconds} s, which is much for files of this size",
        where=files.uri,
        hint="It proves no damage. If the directory is yours, read it without limits: "
        "spark.read.format('statestore').load(…). Files of unknown origin may unpack to far more "
        f"than they are: 'seamark spark inspect {shlex.quote(files.uri)} --read-data'.",
    )


def _error_for(said: SparkFailure, files: CheckpointFiles, reading: StateSelection) -> SeamarkError:
    condition, where = said.condition, f"{files.uri}: {said}"
    if condition in ("STDS_COMMITTED_BATCH_UNAVAILABLE", "STDS_OFFSET_LOG_UNAVAILABLE"):
        return CheckpointNotFoundError(
            f"Spark has no batch {reading.batch} to read state of", where=where
        )
    operator = reading.keeper.operator
    if (
        condition == "STDS_FAILED_TO_READ_STATE_SCHEMA"
        and files.schema_beside(operator.number, operator.stores[0]) is None
        and files.described_operator(operator.number)
        is None  # a Spark that writes descriptions keeps schemas
    ):
        return RefusedError(
            "Spark's reader needs the schema of the state, which Spark keeps from 3.1 on",
            where=where,
            hint="Restore a snapshot of the directory and start the query on it with a newer "
            "Spark: its first batch writes the schema.",
        )
    if (ended := out_of_memory(str(said), where)) is not None:
        return ended
    inspect = f"'seamark spark inspect {shlex.quote(files.uri)}' shows what is wrong."
    if condition.startswith("CANNOT_LOAD_STATE_STORE") and _NO_SUCH_FILE.search(str(said)):
        return _gone(where, inspect, files, reading)
    if condition.startswith(
        ("CANNOT_LOAD_STATE_STORE", "STDS_FAILED_TO_READ", "STDS_NO_PARTITION")
    ):
        return DamageError("the state cannot be read", where=where, hint=inspect)
    if condition.startswith(("STDS_", "UNSUPPORTED", "STATE_STORE_UNSUPPORTED")):
        return RefusedError("Spark cannot read this state so", where=where)
    if _NO_SUCH_FILE.search(said.line):
        return DamageError("a file that the state needs is not there", where=where, hint=inspect)
    return SeamarkError("Spark could not read the state", where=where)


def _gone(
    where: str, inspect: str, files: CheckpointFiles, reading: StateSelection
) -> SeamarkError:
    """State that was removed because it is old, or that should be there."""
    newest = newest_committed(files)
    is_whole = all(need.problem is None for need in needs_of(files, newest))
    if is_whole and (reading.changes is not None or reading.batch < newest):
        what = f"batch {reading.batch}"
        if reading.changes is not None:
            what = f"the changes of batches {reading.changes[0]} to {reading.changes[1]}"
        return CheckpointNotFoundError(
            f"{what}: its state is not there (any more)",
            where=where,
            hint="Spark keeps that of the last spark.sql.streaming.minBatchesToRetain batches, "
            "and no changes where it wrote a whole snapshot.",
        )
    return DamageError("a file that the state needs is not there", where=where, hint=inspect)


# a directory that Spark cannot reach by itself


def brought_here(
    tree: Tree, folder: str, reading: StateSelection, *, is_last_try: bool = False
) -> Tree:
    """A copy on this machine of what a reading takes, with the paths inside leading to it.

    :class:`FileNotFoundError` when Spark has removed a part of it since the directory was listed,
    or may have. On the last try Spark's reader says what is missing.
    """
    copy = LocalDirectory(folder)
    needed = _needed_files(tree, reading)
    if isinstance(needed, str):
        if not is_last_try and tree.entries.keys() != tree.directory.listing().keys():
            raise FileNotFoundError(needed)
        needed = None
    for path in tree.entries:
        if not path.startswith(("metadata", "offsets/", "commits/", "state/")):
            continue
        if needed is not None and is_state(path) and path not in needed:
            continue
        try:
            data = tree.read(path)
        except FileNotFoundError:
            if _is_older_log(path, reading):
                continue
            raise
        copy.write(path, with_root(path, data, copy.uri))
    return Tree.of(copy)


def _needed_files(tree: Tree, reading: StateSelection) -> set[str] | str | None:
    """The files with the state at the batch, or why they are not there; None when it takes all."""
    if reading.changes is not None:
        return None
    number = reading.keeper.operator.number
    try:
        needs = [need for need in needs_of(tree, reading.batch) if need.operator.number == number]
    except DamageError as error:
        return error.what
    problem = next((need.problem for need in needs if need.problem), None)
    return problem or {path for need in needs for path in need.paths}


def _is_older_log(path: str, reading: StateSelection) -> bool:
    """Whether it is the log entry of a batch before all that are read."""
    folder, _, name = path.rpartition("/")
    first = reading.changes[0] if reading.changes is not None else reading.batch
    return folder in ("offsets", "commits") and name.isdecimal() and int(name) < first


# values of Spark's types as JSON has them


def plain(value: Any, kind: DataType) -> Any:
    """A value of a collected row, without loss of what it was.

    Structs and maps with string keys are objects, other maps lists of ``key`` and ``value``. A
    decimal is a string of its digits, bytes are base64, a time with a zone is ISO 8601 in UTC, and
    numbers that JSON lacks are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    from pyspark.sql import types

    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(kind, types.StructType):
        return {
            field.name: plain(inner, field.dataType)
            for field, inner in zip(kind.fields, value, strict=True)
        }
    if isinstance(kind, types.ArrayType):
        return [plain(inner, kind.elementType) for inner in value]
    if isinstance(kind, types.MapType):
        pairs = [(plain(k, kind.keyType), plain(v, kind.valueType)) for k, v in value.items()]
        if isinstance(kind.keyType, types.StringType):
            return dict(pairs)
        return [{"key": k, "value": v} for k, v in pairs]
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        # Spark gives a time with a zone as the wall clock of this machine
        zoned = isinstance(kind, types.TimestampType)
        return value.astimezone(UTC).isoformat() if zoned else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def plain_row(row: Sequence[Any], kind: DataType) -> dict[str, Any]:
    """A collected row by the names of its columns."""
    values = plain(row, kind)
    assert isinstance(values, dict)
    return values
