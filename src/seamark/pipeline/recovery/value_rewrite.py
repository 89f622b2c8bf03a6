"""The state of an aggregation that goes on with other functions: its rows, written again.

The state of the checkpoint is restored into a folder of its own, next to the working copy. Spark
reads it there, and writes each value again: what a function keeps is carried over, what is new is
what Spark gives a group without rows. The result is whole in itself, so it is taken as the state
of the checkpoint's version.

Tests: ``tests/pipeline/test_upgrade_values.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Contents, take_whole_state
from seamark.capture.restore import restore_index
from seamark.checkpoint_dir.operators import DEFAULT_STORE, store_path
from seamark.checkpoint_dir.state_files import closure
from seamark.checkpoint_dir.state_references import require_state_inside
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, RefusedError
from seamark.pipeline.declaration.aggregate_columns import (
    Column,
    FunctionsChange,
    column_origins,
)
from seamark.pipeline.recovery.empty_state import EmptyOperator
from seamark.pipeline.recovery.rescale import Workshop
from seamark.pipeline.recovery.working_dirs import scratch_name
from seamark.spark.pinned_settings import for_session
from seamark.spark.state_values import (
    RewrittenPartition,
    StateSchema,
    ValueRewrite,
    parse_schema,
    rewrite_values,
)

_FORMAT: Final = "spark.sql.streaming.aggregation.stateFormatVersion"
_CHECKPOINT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_VERSION: Final = 1
"""Of what is written: the first one of a store that was empty."""


@dataclass(frozen=True)
class StateOfOperator:
    """The state of one operator in a checkpoint."""

    number: int
    version: int
    index: FileIndex
    small: Contents
    """The files that no shared object holds."""
    ids: Sequence[Sequence[str]] | None
    """By partition: the id of each store, in checkpoint format 2."""
    pinned: Mapping[str, str]
    """Spark's settings that the checkpoint has pinned."""

    @property
    def schema(self) -> StateSchema:
        """What its rows are; :class:`DamageError` when that cannot be read."""
        path = f"{store_path(self.number, 0, DEFAULT_STORE)}/_metadata/schema"
        if (data := self.small.get(path)) is None:
            raise DamageError(f"the checkpoint lacks {path}")
        return parse_schema(data)

    def files(self) -> FileIndex:
        """Its files."""
        folder = f"state/{self.number}/"
        return FileIndex(
            {path: file for path, file in self.index.files.items() if path.startswith(folder)}
        )


@dataclass(frozen=True)
class RewrittenState:
    """State files of an operator, by their paths in the new checkpoint."""

    small: Contents
    stored: dict[str, StoredFile]
    ids: list[list[str]] | None


def new_columns(state: StateOfOperator, change: FunctionsChange, empty: EmptyOperator) -> list[Any]:
    """For each column of the new value: the number of an old one, or an expression of Spark's.

    :class:`RefusedError` when that is not certain, or a function cannot begin empty.
    """
    if state.pinned.get(_FORMAT, "2") != "2":
        raise RefusedError(
            f"state with {_FORMAT} {state.pinned[_FORMAT]} cannot go on with other functions",
            hint="Give the changed output a new name, next to the old one.",
        )
    had = [Column(*column) for column in state.schema.columns]
    has = [[Column(*column) for column in each.columns] for each in empty.buffers]
    origins = column_origins(change, had, has)
    number = empty.operator.number
    described = empty.descriptions.get(
        f"{store_path(number, 0, DEFAULT_STORE)}/_metadata/schema", b""
    )
    if parse_schema(described).columns != [tuple(column) for each in has for column in each]:
        raise RefusedError(
            "the columns that Spark keeps for the functions are not those of its state",
            where=", ".join(change.after),
            hint="Give the changed output a new name, next to the old one.",
        )
    initial = [
        value for each in empty.buffers for value in each.initial or [None] * len(each.columns)
    ]
    for text, buffer in zip(change.after, empty.buffers, strict=True):
        if text in change.new and buffer.initial is None:
            raise RefusedError(
                f"{text} keeps an object of its own, and Spark does not say what that is for a "
                "group without rows",
                hint="Compute it in a new output, next to the old one.",
            )
    return [
        value if origin is None else origin for origin, value in zip(origins, initial, strict=True)
    ]


def rewritten_state(
    state: StateOfOperator,
    columns: Sequence[Any],
    empty: EmptyOperator,
    workshop: Workshop,
) -> RewrittenState:
    """The state of the checkpoint with other columns, as that of the operator in ``empty``."""
    number = empty.operator.number
    scratch = workshop.place.below(scratch_name("upgrade", workshop.uploads.generation))
    old, new = scratch.below("old"), scratch.below("new")
    try:
        scratch.make()
        files, pinned = state.files(), for_session(state.pinned, workshop.spark)
        with workshop.long_work("restoring the state", files.size) as advance:
            restore_index(old, files, state.small, workshop.shared, advance, workshop.fetch_all)
        require_state_inside(old, workshop.spark)
        partitions = old.partition_numbers(state.number)
        after = f"{store_path(number, 0, DEFAULT_STORE)}/_metadata/schema"
        rewrite = ValueRewrite(
            operator=state.number,
            target=number,
            version=state.version,
            partitions=partitions,
            ids=[] if state.ids is None else [stores[0] for stores in state.ids],
            before=state.schema,
            after=parse_schema(empty.descriptions[after]),
            columns=columns,
            settings={**pinned, _CHECKPOINT: "1" if state.ids is None else "2"},
            has_changelogs=any(path.endswith(".changelog") for path in files.files),
        )
        written = rewrite_values(workshop.spark, old.uri, new.uri, rewrite)
        return _taken(new, number, written, state.version, workshop)
    finally:
        scratch.destroy()


def _taken(
    copy: WorkingCopy,
    number: int,
    written: Mapping[int, RewrittenPartition],
    version: int,
    workshop: Workshop,
) -> RewrittenState:
    paths = []
    for partition, about in written.items():
        folder = store_path(number, partition, DEFAULT_STORE)
        ids = None if about.id is None else {_VERSION: about.id}
        names = closure(copy.names_in(folder), _VERSION, copy.reader(folder), ids)
        paths += [f"{folder}/{name}" for name in names]
    sizes = (copy.size(path) or 0 for path in paths)
    with workshop.long_work("storing the state", sum(sizes)) as advance:
        mover = workshop.mover(copy, advance)
        small, stored = take_whole_state(mover, paths, version, copy.root)
    found = [about.id for _, about in sorted(written.items())]
    return RewrittenState(small, stored, [[each] for each in found if each] or None)
