"""Empty state for every operator of a pipeline, made by Spark itself.

The pipeline's query runs one batch on sources without rows, in a folder of its own. What it leaves
there says what each operator is, and is the state with which a new one begins.

Tests: ``tests/pipeline/test_upgrades.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from seamark.capture.movers import Contents
from seamark.checkpoint_dir.closures import needs_of
from seamark.checkpoint_dir.operators import StatefulOperator
from seamark.checkpoint_dir.schema_paths import ROOT_MARK, with_root
from seamark.checkpoint_dir.state_files import whole_at_version
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import RefusedError
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.spark.batch_log import parse_commit
from seamark.spark.failures import explained
from seamark.spark.pinned_settings import for_session
from seamark.spark.plans.aggregate_buffers import Buffers, FunctionBuffer, aggregate_buffers
from seamark.spark.plans.empty_sources import with_empty_sources
from seamark.spark.session import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_CHANGELOGS: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_PATIENCE: Final = 600


@dataclass(frozen=True)
class EmptyOperator:
    """What one operator looks like before its first row."""

    operator: StatefulOperator
    descriptions: Contents
    """Spark's description of it and of its schemas, by path."""
    state: Contents
    """The files of its stores at version 1, each a whole state, by path."""
    ids: list[list[str]] | None
    """By partition: the id of each store, in checkpoint format 2."""
    buffers: tuple[FunctionBuffer, ...] = ()
    """What each function of an aggregation keeps for a group."""


@dataclass(frozen=True)
class EmptyState:
    """Every operator of a pipeline, by its number."""

    operators: Mapping[int, EmptyOperator] = field(default_factory=dict)

    def files_at(self, number: int, version: int) -> Contents:
        """The files of one operator as those of a later version: what is empty stays empty."""
        found = self.operators[number]
        return found.descriptions | {
            whole_at_version(path, version): data for path, data in found.state.items()
        }


def empty_state(
    declared: DeclaredPipeline,
    scratch: WorkingCopy,
    *,
    pinned: Mapping[str, str],
    format_2: bool,
) -> EmptyState:
    """Run the pipeline's query once on nothing, in a folder that is removed in the end.

    ``pinned`` are Spark's settings that the checkpoint has pinned.
    """
    if not declared.compiled.is_stateful:
        return EmptyState()
    try:
        scratch.make()
        scratch.write("in/empty.json", b"")
        copy = scratch.below("checkpoint")
        settings = {
            **for_session(pinned, declared.compiled.df.sparkSession),
            **declared.compiled.operators_to_run(declared.output_mode)[1],
            # a change alone is not a whole state
            _CHANGELOGS: "false",
            _FORMAT: "2" if format_2 else "1",
        }
        with session_settings(declared.compiled.df.sparkSession, settings):
            query = _start(declared, f"{scratch.uri}/in", copy)
        _finish(query)
        return EmptyState(_operators(copy, _buffers(query, declared)))
    finally:
        scratch.destroy()


def _start(declared: DeclaredPipeline, folder: str, copy: WorkingCopy) -> StreamingQuery:
    empty = with_empty_sources(declared.compiled.df, folder)
    writer = (
        empty.writeStream.outputMode(declared.output_mode)
        .queryName(f"{declared.identity.name}-upgrade")
        .option("checkpointLocation", copy.uri)
        .trigger(availableNow=True)
        .foreachBatch(_read_all)
    )
    with _explained():
        return writer.start()


def _finish(query: StreamingQuery) -> None:
    with _explained():
        if query.awaitTermination(_PATIENCE):
            return
    query.stop()
    raise RefusedError(f"Spark has not made empty state in {_PATIENCE} s")


@contextmanager
def _explained() -> Iterator[None]:
    """Have an error of Spark say what happened in our words."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise explained(error) from error


def _read_all(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def _buffers(query: StreamingQuery, declared: DeclaredPipeline) -> Buffers:
    wrapper: Any = query._jsq
    plan = wrapper.streamingQuery().lastExecution().executedPlan()
    return aggregate_buffers(declared.compiled.df.sparkSession.sparkContext._jvm, plan)


def _operators(copy: WorkingCopy, buffers: Buffers) -> dict[int, EmptyOperator]:
    _, ids = parse_commit(copy.read_text("commits/0") or "")
    descriptions, needs = copy.descriptions(), list(needs_of(copy, 0))
    return {
        operator.number: EmptyOperator(
            operator,
            {
                path: with_root(path, copy.read(path), ROOT_MARK)
                for path in descriptions
                if path.startswith(f"state/{operator.number}/")
            },
            {
                path: copy.read(path)
                for need in needs
                if need.folder.operator == operator.number
                for path in need.paths
            },
            None if ids is None else ids.get(operator.number),
            tuple(buffers.get(operator.number, ())),
        )
        for operator in copy.operators()
    }
