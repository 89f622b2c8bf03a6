"""What a table of PostgreSQL can take back, and what its ledger remembers."""

from __future__ import annotations

import pytest

from seamark.errors import RefusedError
from seamark.sinks.postgres.ledger import REMEMBERED_PLANS
from seamark.testing.conformance.sink_examples import NEW, OLD, epoch, receipt
from tests.sinks.support.postgres import ROWS, numbers, opened, rows_of, run, show, stage


@pytest.fixture
def dsn(empty_database: str) -> str:
    run(empty_database, ROWS)
    return empty_database


def aside(dsn: str) -> list[tuple[int, int]]:
    """Rows that were taken back, from all tables that keep such."""
    tables = rows_of(dsn, "SELECT relname FROM pg_class WHERE relname LIKE '\\_seamark%back%'")
    found = [row for (name,) in tables for row in rows_of(dsn, f'SELECT n, at_epoch FROM "{name}"')]
    return sorted((int(n), at) for n, at in found)


def test_rows_that_are_taken_back_are_kept_aside_and_rows_of_others_stay(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    for number in (1, 2, 3):
        show(sink, [10 * number], number)
    run(dsn, "INSERT INTO rows VALUES (7, 'theirs', NULL), (8, 'theirs', 99)")
    assert opened(dsn, epoch_column="at_epoch").unpublish_after(1) == [2, 3]
    assert numbers(dsn) == [7, 8, 10]
    assert aside(dsn) == [(20, 2), (30, 3)]
    assert sink.leftovers() == [], "what is kept aside is not what was staged"


def test_rows_can_be_taken_back_after_the_table_has_changed(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    for number in (1, 2, 3, 4):
        show(sink, [10 * number], number)
    assert sink.unpublish_after(3) == [4]
    run(dsn, "ALTER TABLE rows ADD COLUMN more int DEFAULT 5")
    assert sink.unpublish_after(2) == [3]
    run(dsn, "ALTER TABLE rows ALTER COLUMN n TYPE numeric", "ALTER TABLE rows DROP COLUMN more")
    assert sink.unpublish_after(1) == [2]
    assert numbers(dsn) == [10]
    assert aside(dsn) == [(20, 2), (30, 3), (40, 4)]


def test_an_epoch_is_shown_again_by_the_timeline_after_a_rollback(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    show(sink, [1], 1)
    show(sink, [2], 2)
    sink.unpublish_after(1)
    sink.commit(stage(sink, [22], epoch(2, NEW), "b2"))
    assert numbers(dsn) == [1, 22]
    assert sink.committed(NEW, 2) == receipt(2, "b2", NEW)


def test_without_a_column_for_the_epoch_nothing_is_taken_back(dsn: str) -> None:
    sink = opened(dsn)
    show(sink, [1], 1)
    with pytest.raises(RefusedError, match="epoch_column"):
        sink.unpublish_after(0)
    assert numbers(dsn) == [1]


def test_the_ledger_does_not_grow_with_old_plans(dsn: str) -> None:
    sink = opened(dsn)
    for number in range(1, 4):
        show(sink, [], number)
    show(sink, [], 2 + REMEMBERED_PLANS)
    newest, oldest = sink.newest(), sink.committed(OLD, 1)
    assert newest is not None
    assert newest.plan == epoch(2 + REMEMBERED_PLANS).plan
    assert oldest is not None
    assert oldest.plan == epoch(1).plan, "only the epoch that left the window has none"
    second, third = sink.committed(OLD, 2), sink.committed(OLD, 3)
    assert second is not None
    assert third is not None
    assert (second.plan, third.plan) == (None, epoch(3).plan)


def test_with_a_column_for_the_epoch_a_reader_sees_the_table_as_of_any_epoch(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    committables = [show(sink, [10 * number], number) for number in (1, 2, 3)]
    run(dsn, "INSERT INTO rows VALUES (7, 'theirs')")
    for number, committable in enumerate(committables, 1):
        point = opened(dsn, epoch_column="at_epoch").read_point(committable)
        assert not point.only_newest
        query = f"SELECT n FROM {point.at['table']} WHERE {point.at['condition']} ORDER BY n"
        assert rows_of(dsn, query) == [(10 * n,) for n in range(1, number + 1)]


def test_without_such_a_column_only_the_newest_epoch_can_be_read(dsn: str) -> None:
    point = opened(dsn).read_point(show(opened(dsn), [1], 1))
    assert point.only_newest
    assert point.at == {"epoch": 1, "table": '"public"."rows"'}
    assert rows_of(dsn, f"SELECT n FROM {point.at['table']}") == [(1,)]
