"""The rows of a query's state at a batch, and what batches changed, by Spark's own reader.

What is to be read is decided from the files alone, so that a question that has no answer is told
without a Spark being started.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.spark.checkpoint_files import CheckpointFiles, StatefulOperator
from seamark.spark.closures import needs_of
from seamark.spark.failures import is_of_spark
from seamark.spark.logs import OffsetLogEntry, parse_commit, parse_offsets
from seamark.spark.native.batches import newest_committed
from seamark.spark.native.spark_errors import Said, said_by
from seamark.spark.state_files import parse_state_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Side = Literal["left", "right"]

FORMAT_VERSION: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_JOIN_FORMAT: Final = "spark.sql.streaming.join.stateFormatVersion"
_JOIN: Final = "symmetricHashJoin"
_NO_SUCH_FILE: Final = re.compile(r"does not exist|NOT_EXISTS|FileNotFound|[Nn]o such file")


class Variable(NamedTuple):
    """A state variable of a transformWithState."""

    name: str
    kind: str


@dataclass(frozen=True)
class Keeper:
    """A stateful operator, and what can be asked of it."""

    operator: StatefulOperator
    variables: tuple[Variable, ...]

    @property
    def is_join(self) -> bool:
        """Whether it keeps the rows of two sides."""
        return self.operator.name.startswith(_JOIN)


@dataclass(frozen=True)
class Asked:
    """Which rows somebody wants to see. None is whatever there is only one of."""

    batch: int | None = None
    operator: int | None = None
    store: str | None = None
    side: Side | None = None
    variable: str | None = None
    partition: int | None = None
    changes: tuple[int, int] | None = None
    """Instead of the rows at a batch: what the first to the second of these changed."""


@dataclass(frozen=True)
class Reading:
    """What is read: one store or variable of one operator, at one batch or over some."""

    keeper: Keeper
    batch: int
    changes: tuple[int, int] | None
    partition: int | None
    options: dict[str, str]
    """Those of Spark's ``statestore`` reader, without the path."""
    format_version: int


def keepers(files: CheckpointFiles) -> list[Keeper]:
    """Every stateful operator; partitions as of the newest batch that says how many there are."""
    return [Keeper(operator, _variables(files, operator)) for operator in files.operators()]


def choose(files: CheckpointFiles, asked: Asked) -> Reading:
    """What to read for a question.

    :class:`CheckpointNotFoundError` for a batch or operator that is not there,
    :class:`InvalidInputError` when more has to be said, :class:`RefusedError` when changes are
    asked for and the state keeps none.
    """
    batch = _batch(files, asked)
    keeper = _keeper(files, asked.operator)
    entry = _entry(files, batch)
    options = {"operatorId": str(keeper.operator.number), **_part(keeper, asked, entry)}
    if asked.changes is None:
        options["batchId"] = str(batch)
    else:
        _require_changes(files, keeper.operator)
        first, last = asked.changes
        options |= {
            "readChangeFeed": "true",
            "changeStartBatchId": str(first),
            "changeEndBatchId": str(last),
        }
    return Reading(
        keeper, batch, asked.changes, asked.partition, options, format_version(files, batch)
    )


@contextmanager
def state_frame(
    spark: SparkSession, files: CheckpointFiles, reading: Reading
) -> Iterator[DataFrame]:
    """The rows as a DataFrame; what Spark says against it comes as one of our errors.

    The settings of ``spark`` stay as they are.
    """
    session = spark.newSession()
    # Spark takes this from the session, also where the directory was written otherwise
    session.conf.set(FORMAT_VERSION, str(reading.format_version))
    try:
        frame = session.read.format("statestore").options(**reading.options).load(files.uri)
        if reading.partition is not None:
            frame = frame.where(frame["partition_id"] == reading.partition)
        yield frame
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise _told(said_by(error), files, reading) from error


def format_version(files: CheckpointFiles, batch: int) -> int:
    """1 for state files named by version, 2 for those with an id that the commit log chooses."""
    ids = parse_commit(files.read_text(f"commits/{batch}") or "")[1]
    return 1 if ids is None else 2


# what is asked for


def _batch(files: CheckpointFiles, asked: Asked) -> int:
    newest = newest_committed(files)
    committed = files.batches("commits")
    if asked.changes is not None and asked.batch is not None:
        raise InvalidInputError("either the rows at a batch or the changes of some, not both")
    if asked.changes is not None and asked.changes[0] > asked.changes[1]:
        raise InvalidInputError(f"changes {asked.changes[0]}..{asked.changes[1]} go backwards")
    wanted = asked.changes or (newest if asked.batch is None else asked.batch,)
    for batch in wanted:
        if batch not in committed:
            raise CheckpointNotFoundError(
                f"batch {batch} is not among the committed ones",
                where=files.uri,
                hint=f"Spark still has {committed[0]} to {newest}.",
            )
    return wanted[-1]


def _keeper(files: CheckpointFiles, number: int | None) -> Keeper:
    found = keepers(files)
    if not found:
        raise CheckpointNotFoundError("this query keeps no state", where=files.uri)
    names = ", ".join(f"{k.operator.number} ({k.operator.name})" for k in found)
    if number is None and len(found) > 1:
        raise InvalidInputError(
            "this query has several stateful operators: which one?",
            where=f"There are {names}.",
            hint=f"Say --operator {found[0].operator.number}, for example.",
        )
    for keeper in found:
        if number is None or keeper.operator.number == number:
            return keeper
    raise CheckpointNotFoundError(
        f"there is no stateful operator {number}", where=files.uri, hint=f"There is {names}."
    )


def _part(keeper: Keeper, asked: Asked, entry: OffsetLogEntry) -> dict[str, str]:
    """The options that choose among what one operator keeps."""
    if sum(given is not None for given in (asked.store, asked.side, asked.variable)) > 1:
        raise InvalidInputError("give one of a store, a side of a join and a state variable")
    if keeper.variables or asked.variable is not None:
        return {"stateVarName": _variable(keeper, asked.variable)}
    if keeper.is_join:
        return _join_part(keeper, asked, entry)
    number = keeper.operator.number
    if asked.side is not None:
        raise InvalidInputError(
            f"operator {number} ({keeper.operator.name}) is no join, so it has no sides"
        )
    stores = keeper.operator.stores
    if asked.store is not None and asked.store not in stores:
        raise CheckpointNotFoundError(
            f"operator {number} has no store {asked.store!r}", hint=f"It has {', '.join(stores)}."
        )
    if asked.store is None and len(stores) > 1:
        raise InvalidInputError(
            f"operator {number} has several stores: which one?",
            hint=f"Say --store-name with one of {', '.join(stores)}.",
        )
    return {"storeName": asked.store or stores[0]}


def _join_part(keeper: Keeper, asked: Asked, entry: OffsetLogEntry) -> dict[str, str]:
    if asked.store is not None:
        return {"storeName": asked.store}
    if asked.side is None:
        raise InvalidInputError(
            f"operator {keeper.operator.number} is a join: which side?",
            hint="Say --join-side left or --join-side right.",
        )
    if asked.changes is None:
        return {"joinSide": asked.side}
    # Spark has no changes of a side as such, but it has those of the store with the rows
    newest = entry.conf.get(_JOIN_FORMAT) == "4"
    return {"storeName": f"{asked.side}-{'keyWithTsToValues' if newest else 'keyWithIndexToValue'}"}


def _variable(keeper: Keeper, name: str | None) -> str:
    number, known = keeper.operator.number, [variable.name for variable in keeper.variables]
    told = ", ".join(f"{variable.name} ({variable.kind})" for variable in keeper.variables)
    if name is None:
        if len(known) == 1:
            return known[0]
        raise InvalidInputError(
            f"operator {number} keeps {len(known)} state variables: which one?",
            where=f"There are {told}.",
            hint=f"Say --state-var {known[0]}, for example.",
        )
    if name not in known:
        raise CheckpointNotFoundError(
            f"operator {number} keeps no state variable {name!r}",
            hint=f"It keeps {told}." if told else "Only transformWithState has such variables.",
        )
    return name


def _variables(files: CheckpointFiles, operator: StatefulOperator) -> tuple[Variable, ...]:
    folder = f"state/{operator.number}/_metadata/v2"
    versions = files.batches(folder)
    text = files.read_text(f"{folder}/{versions[-1]}") if versions else None
    try:
        fields = json.loads((text or "").partition("\n")[2] or "{}")
        properties = json.loads(fields.get("operatorPropertiesJson") or "{}")
        return tuple(
            Variable(str(one["stateName"]), str(one["stateVariableType"]))
            for one in properties.get("stateVariables", ())
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamageError(
            f"what Spark says about stateful operator {operator.number} cannot be read: {error!r}",
            where=f"{files.uri}/{folder}",
        ) from None


def _entry(files: CheckpointFiles, batch: int) -> OffsetLogEntry:
    text = files.read_text(f"offsets/{batch}")
    if text is None:
        raise DamageError(f"offsets/{batch} is not there", where=files.uri)
    return parse_offsets(text)


def _require_changes(files: CheckpointFiles, operator: StatefulOperator) -> None:
    """:class:`RefusedError` when every version of the state is a whole one."""
    found = [
        file
        for path in files.files_below(f"state/{operator.number}")
        if (file := parse_state_file(path.rsplit("/", 1)[1])) is not None
    ]
    if found and all(file.is_snapshot for file in found):
        raise RefusedError(
            "this state keeps no changes: RocksDB wrote a whole snapshot with every batch",
            where=files.uri,
            hint=f"With {CHANGELOG}=true the batches from then on can be told apart. Until then, "
            "compare the rows at two batches.",
        )


# what Spark says against it


def _told(said: Said, files: CheckpointFiles, reading: Reading) -> SeamarkError:
    told, where = said.condition, f"{files.uri}: {said}"
    if told in ("STDS_COMMITTED_BATCH_UNAVAILABLE", "STDS_OFFSET_LOG_UNAVAILABLE"):
        return CheckpointNotFoundError(
            f"Spark has no batch {reading.batch} to read state of", where=where
        )
    inspect = f"'seamark spark inspect {files.uri}' shows what is wrong."
    if told.startswith("CANNOT_LOAD_STATE_STORE") and _NO_SUCH_FILE.search(str(said)):
        return _gone(where, inspect, files, reading)
    if told.startswith(("CANNOT_LOAD_STATE_STORE", "STDS_FAILED_TO_READ", "STDS_NO_PARTITION")):
        return DamageError("the state cannot be read", where=where, hint=inspect)
    if told.startswith(("STDS_", "UNSUPPORTED", "STATE_STORE_UNSUPPORTED")):
        return RefusedError("Spark cannot read this state so", where=where)
    if _NO_SUCH_FILE.search(said.line):
        return DamageError("a file that the state needs is not there", where=where, hint=inspect)
    return SeamarkError("Spark could not read the state", where=where)


def _gone(where: str, inspect: str, files: CheckpointFiles, reading: Reading) -> SeamarkError:
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
