"""Attacks on a table of PostgreSQL that the suite of all sinks cannot make.

Each takes a :class:`TableWorld` and fails when readers see a row twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest

from seamark.sinks import Epoch, PostgresSink
from seamark.sinks.postgres.copying import Copied
from seamark.testing.conformance.sink_examples import OLD, PIPELINE, SINK, epoch, through_json
from tests.sinks.support.frames import frame
from tests.sinks.support.postgres import (
    NUMBERS,
    batches_from,
    copy,
    numbers,
    with_options,
)
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

COMMIT = b"COMMIT\0"


class HandWrittenTable(PostgresSink):
    """A PostgresSink whose rows are copied by hand instead of by Spark's tasks."""

    tries = 1
    """How often each task runs; only its last try is reported."""

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        super().open(pipeline, sink, NUMBERS)

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        self._begin(epoch, attempt)
        copied = Copied([], 0)
        for _ in range(self.tries):
            copied = copy(self, attempt, batches_from(df))
        self._staged = self._prepared(epoch, attempt, copied)


@dataclass(frozen=True)
class TableWorld:
    """An empty table ``rows``, and the kind of sink that writes to it."""

    dsn: str
    kind: type[HandWrittenTable] = HandWrittenTable

    def sink(self, dsn: str | None = None) -> HandWrittenTable:
        """As a process that has just started would have it."""
        made = self.kind(dsn or self.dsn, "rows", epoch_column="at_epoch")
        made.open(PIPELINE, SINK, None)
        made.prepare_target()
        return made

    def prepare(self, sink: PostgresSink, rows: list[int], about: Epoch) -> dict[str, Any]:
        sink.stage(frame(rows), about, f"a{about.number}")
        return through_json(sink.prepare())

    def rows(self) -> list[int]:
        return numbers(self.dsn)


Attack = Callable[[TableWorld], None]
ATTACKS: list[Attack] = []


def attack(one: Attack) -> Attack:
    ATTACKS.append(one)
    return one


@contextmanager
def proxied(world: TableWorld) -> Iterator[tuple[CuttingProxy, str]]:
    with cutting_proxy("127.0.0.1", urlsplit(world.dsn).port or 0) as proxy:
        yield proxy, with_options(world.dsn, port=proxy.port)


@attack
def a_commit_whose_answer_is_lost_shows_each_row_once(world: TableWorld) -> None:
    with proxied(world) as (proxy, dsn):
        sink = world.sink(dsn)
        committable = world.prepare(sink, [1, 2], epoch(1))
        proxy.lose_answer_to(COMMIT)
        sink.commit(committable)
        assert proxy.cuts == 1
    assert world.rows() == [1, 2]


@attack
def a_commit_that_never_arrived_is_repeated(world: TableWorld) -> None:
    with proxied(world) as (proxy, dsn):
        sink = world.sink(dsn)
        committable = world.prepare(sink, [1, 2], epoch(1))
        proxy.lose(COMMIT)
        sink.commit(committable)
        assert proxy.cuts == 1
    assert world.rows() == [1, 2]


class Died(BaseException):
    """The driver ends here."""


@contextmanager
def dying_after(statements: int) -> Iterator[None]:
    """Whoever runs the statement after these dies; what is not committed is undone."""
    execute: Any = psycopg.Connection.execute
    run: list[None] = []

    def counted(*arguments: Any, **more: Any) -> Any:
        if len(run) == statements:
            raise Died
        run.append(None)
        return execute(*arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", counted)
        yield


@attack
def a_driver_that_dies_at_any_statement_of_its_commit_leaves_all_or_nothing(
    world: TableWorld,
) -> None:
    shown: list[int] = []
    for statements in range(50):
        about, died = epoch(statements + 1), False
        sink = world.sink()
        committable = world.prepare(sink, [about.number], about)
        try:
            with dying_after(statements):
                sink.commit(committable)
        except Died:
            died = True
            is_noted = world.sink().committed(OLD, about.number) is not None
            assert is_noted == (about.number in world.rows())
            world.sink().commit(committable)
        shown.append(about.number)
        assert world.rows() == shown
        if not died:
            return
    raise AssertionError("no commit has that many statements")


@attack
def a_task_that_ran_twice_counts_once(world: TableWorld) -> None:
    sink = world.sink()
    sink.tries = 2
    sink.commit(world.prepare(sink, [1, 2], epoch(1)))
    assert world.rows() == [1, 2]
