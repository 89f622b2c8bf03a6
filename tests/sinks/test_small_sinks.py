"""Functions, memory and the terminal as sinks."""

from __future__ import annotations

import io
from typing import Any

import pytest

from seamark.errors import InvalidInputError, LineageError, RefusedError
from seamark.sinks import ConsoleSink, ForeachBatchSink, MemorySink
from seamark.testing.conformance.sink_examples import NEW, epoch
from tests.sinks.support.frames import frame


def to_a_table(df: Any, number: int) -> None:
    raise NotImplementedError


class Callable:
    def __call__(self, df: Any, number: int) -> None:
        raise NotImplementedError


# functions


def test_the_function_gets_the_rows_and_the_number_while_staging() -> None:
    got: list[tuple[object, int]] = []
    sink = ForeachBatchSink(lambda df, number: got.append((df, number)))
    rows = frame([1, 2])
    sink.stage(rows, epoch(7), "a1")
    assert got == [(rows, 7)]
    assert sink.prepare() == {}
    sink.commit({})
    sink.abort("a1")
    assert got == [(rows, 7)], "and nothing more"
    assert (sink.committed("t", 7), sink.newest(), sink.leftovers()) == (None, None, [])


def test_an_error_of_the_function_is_the_users_own() -> None:
    with pytest.raises(NotImplementedError):
        ForeachBatchSink(to_a_table).stage(frame([]), epoch(1), "a1")


def test_a_function_cannot_take_anything_back() -> None:
    with pytest.raises(RefusedError, match="cannot take back"):
        ForeachBatchSink(to_a_table).unpublish_after(1)


def test_a_function_is_described_by_a_name_that_lasts() -> None:
    assert ForeachBatchSink(to_a_table).describe().target == "to_a_table"
    assert ForeachBatchSink(to_a_table, name="orders").describe().target == "orders"
    assert ForeachBatchSink(Callable()).describe().target == "Callable"
    with pytest.raises(InvalidInputError):
        ForeachBatchSink("to_a_table")  # type: ignore[arg-type]


# memory


def test_rows_in_memory_come_in_the_order_of_their_epochs() -> None:
    sink = MemorySink()
    for number, rows in ((10, [3, 4]), (9, [1, 2])):
        sink.stage(frame(rows), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    assert [row.n for row in sink.rows] == [1, 2, 3, 4]
    assert {number: len(rows) for number, rows in sink.epochs.items()} == {9: 2, 10: 2}


def test_memory_of_another_process_is_gone_and_that_is_no_error() -> None:
    before = MemorySink()
    before.stage(frame([1]), epoch(1), "a1")
    committable = before.prepare()
    after = MemorySink()
    after.commit(committable)
    assert after.rows == []


def test_memory_tells_histories_apart() -> None:
    sink = MemorySink()
    sink.stage(frame([1]), epoch(1), "a1")
    sink.commit(sink.prepare())
    sink.stage(frame([2]), epoch(1, NEW), "b1")
    with pytest.raises(LineageError):
        sink.commit(sink.prepare())
    with pytest.raises(InvalidInputError):
        sink.commit({})
    with pytest.raises(InvalidInputError):
        MemorySink().prepare()


# the terminal


def printed(values: list[int], **options: Any) -> str:
    out = io.StringIO()
    sink = ConsoleSink(file=out, **options)
    sink.stage(frame(values), epoch(3), "a1")
    committable = sink.prepare()
    assert out.getvalue() == "", "nothing before the commit"
    sink.commit(committable)
    sink.commit(committable)
    return out.getvalue()


def test_an_epoch_is_printed_once_when_it_is_committed() -> None:
    assert printed([1, 22]) == (
        "bars, epoch 3\n+--+----+\n| n|word|\n+--+----+\n| 1|   1|\n|22|  22|\n+--+----+\n\n"
    )


def test_an_epoch_without_rows_is_printed_too() -> None:
    assert printed([]) == "bars, epoch 3\n+-+----+\n|n|word|\n+-+----+\n\n"


def test_more_rows_than_asked_for_are_not_printed() -> None:
    assert "only the first 2 rows" in printed([1, 2, 3], rows=2)
    assert "only the first" not in printed([1, 2], rows=2)
    assert "|   3|" not in printed([1, 2, 3], rows=2)


def test_long_values_are_cut_unless_asked_not_to() -> None:
    long = 10**30
    assert f"|{str(long)[:17]}...|" in printed([long])
    assert f"|{long}|" in printed([long], truncate=False)
    assert f"|{str(long)[:2]}...|" in printed([long], truncate=5)


def test_an_aborted_epoch_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink()
    sink.stage(frame([1]), epoch(1), "a1")
    committable = sink.prepare()
    assert sink.leftovers() == ["a1"]
    sink.abort("a1")
    sink.commit(committable)
    assert capsys.readouterr().out == ""
    sink.stage(frame([1]), epoch(1), "a2")
    sink.commit(sink.prepare())
    assert "epoch 1" in capsys.readouterr().out


def test_a_console_that_prints_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        ConsoleSink(rows=0)
    with pytest.raises(InvalidInputError):
        ConsoleSink().prepare()
