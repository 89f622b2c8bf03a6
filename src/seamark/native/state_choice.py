"""Which state is meant: decided from the files alone, without Spark.

Tests: ``tests/native/test_state_rows.py``.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from seamark._common.json_documents import decode_foreign
from seamark.capture.batches import newest_committed
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.operators import (
    JOIN,
    JOIN_STORES,
    StatefulOperator,
    description_fields,
)
from seamark.checkpoint_dir.schema_paths import operator_schemas
from seamark.checkpoint_dir.state_files import parse_state_file
from seamark.errors import CheckpointNotFoundError, DamageError, InvalidInputError, RefusedError
from seamark.spark.batch_log import OffsetLogEntry, parse_commit, parse_offsets

Side = Literal["left", "right"]

FORMAT_VERSION: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
JOIN_FORMAT: Final = "spark.sql.streaming.join.stateFormatVersion"
_NEW_JOIN_STORES: Final = tuple(
    f"{side}-{kind}" for side in ("left", "right") for kind in ("keyWithTsToValues", "tsWithKey")
)
"""What a join keeps in state format 4. From format 3 on all of it is in one store."""


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
        return self.operator.name.startswith(JOIN)


@dataclass(frozen=True, kw_only=True)
class StateRequest:
    """Which rows to show. None stands for whatever there is only one of."""

    batch: int | None = None
    operator: int | None = None
    store: str | None = None
    side: Side | None = None
    variable: str | None = None
    partition: int | None = None
    changes: tuple[int, int] | None = None
    """Instead of the rows at a batch: what the first to the second of these changed."""


@dataclass(frozen=True, kw_only=True)
class StateSelection:
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


def choose(files: CheckpointFiles, asked: StateRequest) -> StateSelection:
    """What to read for a question.

    :class:`CheckpointNotFoundError` for a batch or operator that is not there,
    :class:`InvalidInputError` when more has to be said, :class:`RefusedError` when changes are
    asked for and the state keeps none, :class:`DamageError` when a description names a schema that
    is none of its operator.
    """
    batch = _batch(files, asked)
    keeper = _keeper(files, asked.operator)
    operator_schemas(files, keeper.operator.number)  # DamageError for what is none
    entry = offsets_of(files, batch)
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
    return StateSelection(
        keeper=keeper,
        batch=batch,
        changes=asked.changes,
        partition=asked.partition,
        options=options,
        format_version=format_version(files, batch),
    )


def format_version(files: CheckpointFiles, batch: int) -> int:
    """1 for state files named by version, 2 for those with an id that the commit log chooses."""
    ids = parse_commit(files.read_text(f"commits/{batch}") or "")[1]
    return 1 if ids is None else 2


# what is asked for


def _batch(files: CheckpointFiles, asked: StateRequest) -> int:
    newest = newest_committed(files)
    committed = files.batches("commits")
    if asked.changes is not None and asked.batch is not None:
        raise InvalidInputError("either the rows at a batch or the changes of some, not both")
    if asked.changes is not None and asked.changes[0] > asked.changes[1]:
        raise InvalidInputError(f"changes {asked.changes[0]}..{asked.changes[1]} go backwards")
    batches = asked.changes or (newest if asked.batch is None else asked.batch,)
    for batch in batches:
        if batch not in committed:
            raise CheckpointNotFoundError(
                f"batch {batch} is not among the committed ones",
                where=files.uri,
                hint=f"Spark still has {committed[0]} to {newest}.",
            )
    return batches[-1]


def _keeper(files: CheckpointFiles, number: int | None) -> Keeper:
    candidates = keepers(files)
    if not candidates:
        raise CheckpointNotFoundError("this query keeps no state", where=files.uri)
    names = ", ".join(f"{k.operator.number} ({k.operator.name})" for k in candidates)
    if number is None and len(candidates) > 1:
        raise InvalidInputError(
            "this query has several stateful operators: which one?",
            where=f"There are {names}.",
            hint=f"Say --operator {candidates[0].operator.number}, for example.",
        )
    for keeper in candidates:
        if number is None or keeper.operator.number == number:
            return keeper
    raise CheckpointNotFoundError(
        f"there is no stateful operator {number}", where=files.uri, hint=f"There is {names}."
    )


def _part(keeper: Keeper, asked: StateRequest, entry: OffsetLogEntry) -> dict[str, str]:
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
            f"operator {number} ({keeper.operator.name}) is not a join, so it has no sides"
        )
    stores = keeper.operator.stores
    _require_store(keeper, asked.store, stores)
    if asked.store is None and len(stores) > 1:
        raise InvalidInputError(
            f"operator {number} has several stores: which one?",
            hint=f"Say --store-name with one of {', '.join(map(shlex.quote, stores))}.",
        )
    return {"storeName": asked.store or stores[0]}


def _require_store(keeper: Keeper, name: str | None, stores: Collection[str]) -> None:
    """:class:`CheckpointNotFoundError` for a store that an operator does not have.

    Spark makes a path of the name, and reads whatever state that leads to.
    """
    if name is not None and name not in stores:
        raise CheckpointNotFoundError(
            f"operator {keeper.operator.number} has no store {name!r}",
            hint=f"It has {', '.join(keeper.operator.stores)}.",
        )


def _join_part(keeper: Keeper, asked: StateRequest, entry: OffsetLogEntry) -> dict[str, str]:
    if asked.store is not None:
        known = (*keeper.operator.stores, *JOIN_STORES, *_NEW_JOIN_STORES)
        _require_store(keeper, asked.store, known)
        return {"storeName": asked.store}
    if asked.side is None:
        raise InvalidInputError(
            f"operator {keeper.operator.number} is a join: which side?",
            hint="Say --join-side left or --join-side right.",
        )
    if asked.changes is None:
        return {"joinSide": asked.side}
    # Spark has no changes of a side as such, but it has those of the store with the rows
    newest = entry.conf.get(JOIN_FORMAT) == "4"
    return {"storeName": f"{asked.side}-{'keyWithTsToValues' if newest else 'keyWithIndexToValue'}"}


def _variable(keeper: Keeper, name: str | None) -> str:
    number, known = keeper.operator.number, [variable.name for variable in keeper.variables]
    variables = ", ".join(f"{variable.name} ({variable.kind})" for variable in keeper.variables)
    if name is None:
        if len(known) == 1:
            return known[0]
        raise InvalidInputError(
            f"operator {number} keeps {len(known)} state variables: which one?",
            where=f"There are {variables}.",
            hint=f"Say --state-var {shlex.quote(known[0])}, for example.",
        )
    if name not in known:
        raise CheckpointNotFoundError(
            f"operator {number} keeps no state variable {name!r}",
            hint=f"It keeps {variables}."
            if variables
            else "Only transformWithState has such variables.",
        )
    return name


def _variables(files: CheckpointFiles, operator: StatefulOperator) -> tuple[Variable, ...]:
    folder = f"state/{operator.number}/_metadata/v2"
    versions = files.batches(folder)
    if not versions:
        return ()
    try:
        fields = description_fields(operator.number, files.read(f"{folder}/{versions[-1]}"))
        properties = decode_foreign(fields.get("operatorPropertiesJson") or "{}")
        return tuple(
            Variable(str(one["stateName"]), str(one["stateVariableType"]))
            for one in properties.get("stateVariables", ())
        )
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamageError(
            f"what Spark says about stateful operator {operator.number} cannot be read: {error!r}",
            where=f"{files.uri}/{folder}",
        ) from None


def offsets_of(files: CheckpointFiles, batch: int) -> OffsetLogEntry:
    """What a batch was planned to read; :class:`DamageError` when its entry is not there."""
    text = files.read_text(f"offsets/{batch}")
    if text is None:
        raise DamageError(f"offsets/{batch} is not there", where=files.uri)
    return parse_offsets(text)


def _require_changes(files: CheckpointFiles, operator: StatefulOperator) -> None:
    """:class:`RefusedError` when every version of the state is a whole one."""
    paths = files.files_below(f"state/{operator.number}")
    kept = [file for path in paths if (file := parse_state_file(path.rsplit("/", 1)[1]))]
    if kept and all(file.is_snapshot for file in kept):
        raise RefusedError(
            "this state keeps no changes: RocksDB wrote a whole snapshot with every batch",
            where=files.uri,
            hint=f"With {CHANGELOG}=true the batches from then on can be separated. Until then, "
            "compare the rows at two batches.",
        )
