"""Which row of a key counts, which keys go, and what comes too late."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from seamark.errors import DamageError, RefusedError
from seamark.progress import open_progress
from seamark.sinks.keyvalue import view_rows
from seamark.sinks.keyvalue.view_columns import KEY, VALUE
from seamark.sinks.keyvalue.view_rows import NoRoom, Rows, load_rows
from tests.sinks.support.views import HandWrittenView, Row, World, lines, told


def staged(tmp_path: Path, *rows: Row, watermark: int | None = None, **options: Any) -> Rows:
    """What an epoch of these rows writes."""
    folder = tmp_path / f"staged-{len(list(tmp_path.iterdir()))}"
    HandWrittenView(f"rocksdb://{tmp_path}/view", **options)._write(lines(*rows), str(folder))
    return load_rows(str(folder), watermark)


def test_an_epoch_that_is_too_large_is_read_only_as_far_as_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = pa.array([b"%d" % n for n in range(10_000)])
    pq.write_table(
        pa.table({KEY: keys, VALUE: pa.repeat(b"v" * 1000, 10_000)}), tmp_path / "a.parquet"
    )
    held: list[int] = []

    def counted(folder: str) -> Iterator[pa.RecordBatch]:
        for batch in batches(folder):
            held.append(batch.nbytes)
            yield batch

    batches = view_rows._batches
    monkeypatch.setattr(view_rows, "_batches", counted)
    with pytest.raises(NoRoom):
        load_rows(str(tmp_path), most=2_000_000)
    assert sum(held) < 3_000_000
    assert len(load_rows(str(tmp_path), most=20_000_000).upserts) == 10_000


def kept(rows: Rows) -> dict[str, Row]:
    return {key.decode(): json.loads(value) for key, value in rows.upserts.items()}


# several rows of one key


@pytest.mark.parametrize(
    "ranks",
    [
        [3, 1, 2],
        [0, -1, -2],
        [-1.0, -math.inf, None],
        [math.nan, math.inf, 1.0],  # Spark's order: NaN is greater than anything
        ["b", "a", ""],
        ["", None, None],
        [b"b", b"", None],
        [datetime.timedelta(0), datetime.timedelta(-1), None],
        [
            datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
            None,
        ],
        [True, False, None],
    ],
    ids=str,
)
def test_the_greatest_of_order_by_counts_in_whatever_order_rows_come(
    tmp_path: Path, ranks: list[Any]
) -> None:
    rows = [{"n": 1, "rank": rank, "is": at == 0} for at, rank in enumerate(ranks)]
    if ranks[1] == ranks[2]:
        rows.pop()
    for order in (rows, rows[::-1], rows[1:] + rows[:1]):
        found = kept(staged(tmp_path, *order, order_by="rank"))
        assert found["1"]["is"] is True, order


@pytest.mark.parametrize("rank", [5, None, math.nan, ""])
def test_two_rows_that_are_equally_great_are_refused(tmp_path: Path, rank: Any) -> None:
    rows = [{"n": 1, "rank": rank, "v": value} for value in (1, 2)]
    with pytest.raises(RefusedError, match="two different rows for the key '1', with the same"):
        staged(tmp_path, *rows, order_by="rank")


def test_two_rows_of_one_key_without_order_by_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="two different rows for the key '1'") as refused:
        staged(tmp_path, {"n": 1, "v": 1}, {"n": 2, "v": 2}, {"n": 1, "v": 3})
    assert "order_by" in str(refused.value)


def test_a_row_that_comes_twice_as_it_is_counts_once(tmp_path: Path) -> None:
    twice = [{"n": 1, "v": 1}, {"n": 2, "v": 2}, {"n": 1, "v": 1}]
    assert kept(staged(tmp_path, *twice)) == {"1": twice[0], "2": twice[1]}


def test_deletes_and_upserts_of_one_key_are_ordered_too(tmp_path: Path) -> None:
    rows = [
        {"n": 1, "rank": 1, "gone": True},
        {"n": 1, "rank": 2, "gone": False},
        {"n": 2, "rank": 1, "gone": False},
        {"n": 2, "rank": 2, "gone": True},
    ]
    found = staged(tmp_path, *rows, order_by="rank", delete_where="gone")
    assert ({*found.upserts}, found.deletes) == ({b"1"}, frozenset({b"2"}))
    with pytest.raises(RefusedError, match="two different rows"):
        staged(tmp_path, *rows, delete_where="gone")


def test_two_deletes_of_one_key_do_not_contradict_each_other(tmp_path: Path) -> None:
    rows = [{"n": 1, "why": why, "gone": True} for why in "ab"]
    assert staged(tmp_path, *rows, delete_where="gone").deletes == {b"1"}


def test_a_late_row_does_not_hide_one_of_the_same_key_that_is_in_time(tmp_path: Path) -> None:
    late, in_time = {"n": 1, "time": 90, "rank": 2}, {"n": 1, "time": 200, "rank": 1}
    found = staged(tmp_path, late, in_time, watermark=100, order_by="rank", expire="time")
    assert kept(found) == {"1": in_time}
    assert kept(staged(tmp_path, late, in_time, watermark=100, expire="time")) == {"1": in_time}


# what goes


def test_keys_go_where_the_column_says_so(world: World) -> None:
    sink = world.handle(delete_where="gone")
    world.show(sink, told(1), *({"n": n, "gone": False} for n in range(4)))
    world.show(
        sink, told(2), {"n": 1, "gone": True}, {"n": 3, "gone": None}, {"n": 9, "gone": True}
    )
    assert world.rows().keys() == {"0", "2", "3"}
    world.show(sink, told(3), {"n": 1})
    assert world.rows().keys() == {"0", "1", "2", "3"}


def test_with_replace_an_epoch_is_the_whole_view(world: World) -> None:
    sink = world.handle(replace=True)
    world.show(sink, told(1), *({"n": n} for n in range(4)))
    world.show(sink, told(2), {"n": 2}, {"n": 7})
    assert world.rows().keys() == {"2", "7"}
    world.show(sink, told(3))
    assert world.rows() == {}


def test_keys_expire_when_the_watermark_reaches_their_time(world: World) -> None:
    sink = world.handle(expire="time")
    world.show(sink, told(1), {"n": 1, "time": 100}, {"n": 2, "time": 101}, {"n": 3, "time": None})
    world.show(sink, told(2, watermark=99))
    assert world.rows().keys() == {"1", "2", "3"}
    world.show(sink, told(3, watermark=100))
    assert world.rows().keys() == {"2", "3"}
    world.show(sink, told(4, watermark=10**15))
    assert world.rows().keys() == {"3"}, "a row without a time never expires"
    assert _times(world) == {}


def test_a_late_row_neither_appears_nor_brings_an_older_value_back(world: World) -> None:
    sink = world.handle(expire="time")
    new = {"n": 1, "time": 200, "v": "new"}
    world.show(sink, told(1, watermark=0), {"n": 1, "time": 90, "v": "old"}, {"n": 2, "time": 95})
    world.show(sink, told(2, watermark=50), new)
    world.show(
        sink,
        told(3, watermark=100),
        {"n": 1, "time": 90, "v": "late"},
        {"n": 2, "time": 100, "v": "late"},
        {"n": 5, "time": 99, "v": "late"},
    )
    assert world.rows() == {"1": new}
    world.show(sink, told(4, watermark=199))
    assert world.rows() == {"1": new}, "a key lives as long as its newest row"
    world.show(sink, told(5, watermark=200))
    assert world.rows() == {}


def test_a_late_delete_does_not_take_a_newer_row_away(world: World) -> None:
    sink = world.handle(expire="time", delete_where="gone")
    world.show(sink, told(1), {"n": 1, "time": 200}, {"n": 2, "time": 200})
    late, in_time = {"n": 1, "time": 90, "gone": True}, {"n": 2, "time": 150, "gone": True}
    world.show(sink, told(2, watermark=100), late, in_time)
    assert world.rows().keys() == {"1"}


def test_a_row_that_no_longer_has_a_time_stays(world: World) -> None:
    sink = world.handle(expire="time")
    world.show(sink, told(1), {"n": 1, "time": 100}, {"n": 2, "time": 100})
    world.show(sink, told(2, watermark=50), {"n": 1, "time": None})
    world.show(sink, told(3, watermark=500))
    assert world.rows().keys() == {"1"}


def test_times_are_known_again_after_a_restart_and_with_a_server_that_fell_behind(
    world: World,
) -> None:
    world.show(world.handle(expire="time"), told(1), {"n": 1, "time": 100}, {"n": 2, "time": 900})
    older = world.save()
    sink = world.handle(expire="time")
    world.show(sink, told(2, watermark=10), {"n": 3, "time": 300}, {"n": 2, "time": 400})
    last = world.show(sink, told(3, watermark=100))
    assert world.rows().keys() == {"2", "3"}
    world.show(world.handle(expire="time"), told(4, watermark=300))
    assert world.rows().keys() == {"2"}
    world.bring_back(older)
    world.handle(expire="time").commit(last)
    assert world.rows().keys() == {"2", "3"}
    assert _times(world) == {"2": 400, "3": 300}
    world.close()


def test_a_key_that_is_written_in_every_epoch_costs_no_more_memory_each_time(world: World) -> None:
    sink = world.handle(expire="time")
    for number in range(1, 11):
        world.show(sink, told(number, watermark=number), {"n": 1, "time": 10**6, "v": number})
    expiry = sink._view._expiry
    assert expiry is not None
    assert len(expiry._heap) == 1


def test_replace_and_expire_go_together(world: World) -> None:
    sink = world.handle(expire="time", replace=True)
    world.show(sink, told(1), {"n": 1, "time": 100}, {"n": 2, "time": 100})
    world.show(sink, told(2, watermark=50), {"n": 2, "time": 70}, {"n": 3, "time": 40})
    assert ({*world.rows()}, _times(world)) == ({"2"}, {"2": 70})
    world.show(sink, told(3, watermark=80), {"n": 4, "time": 100})
    assert ({*world.rows()}, _times(world)) == ({"4"}, {"4": 100})


# what is refused before the epoch is decided


def test_rows_without_a_key_are_refused_before_the_decision(world: World) -> None:
    sink = world.handle()
    sink.stage(lines({"n": 1}, {"n": None}, {"n": None}), told(1), "a1")
    with pytest.raises(RefusedError, match="2 rows have no key") as refused:
        sink.prepare()
    assert "where()" in str(refused.value)
    sink.abort("a1")
    assert (world.rows(), sink.leftovers()) == ({}, [])


def test_an_epoch_that_is_too_large_for_redis_is_refused_before_the_decision(
    redis_world: World,
) -> None:
    sink = redis_world.handle(max_epoch_bytes=1000)
    large = [{"n": n, "v": "x" * 100} for n in range(20)]
    sink.stage(lines(*large), told(1), "a1")
    with pytest.raises(RefusedError, match=r"at most 1000 \(max_epoch_bytes\)") as refused:
        sink.prepare()
    assert "raise max_epoch_bytes" in str(refused.value), "what is planned cannot be made smaller"
    assert redis_world.rows() == {}
    redis_world.show(redis_world.handle(max_epoch_bytes=10_000), told(1), *large)
    assert len(redis_world.rows()) == 20


@pytest.mark.parametrize("space", ["epochs", "times"])
def test_what_something_else_has_written_into_a_view_is_an_error_that_names_the_key(
    world: World, space: str
) -> None:
    world.show(world.handle(expire="time"), told(1), {"n": 1, "time": 100})
    world.close()
    with open_progress(world.url) as store, store.session() as session:
        session.put(space, b"newest" if space == "epochs" else b"1", b"{}")
    sink = world.handle(expire="time")
    with pytest.raises(DamageError, match=r"the key '(newest|1)' of the space"):
        world.show(sink, told(2, watermark=5), {"n": 2, "time": 200})


def _times(world: World) -> dict[str, int]:
    with open_progress(world.url, read_only=True) as store:
        return {key.decode(): int.from_bytes(value) for key, value in store.items("times")}
