"""The demo looks at its view beside the writer: half an epoch is noticed, and all is shown."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from seamark.cli.demo.pipeline import LATEST
from seamark.cli.demo.proof import prove
from seamark.cli.demo.screen import Screen
from seamark.cli.demo.trades import SYMBOLS, latest_trades, trade
from seamark.cli.demo.view_reader import Look, ViewReader, Watched
from seamark.errors import DamageError
from seamark.progress import open_progress, rocksdb_url
from tests.cli.support.demos import as_json, by_symbol, change_view


def of_epoch(epoch: int) -> Look:
    return Look(tuple(latest_trades(epoch * 1000)))


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 280
    while not done():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def screen_of(*, terminal: bool) -> tuple[Screen, io.StringIO]:
    shown = io.StringIO()
    console = Console(
        file=shown, force_terminal=terminal, width=80, soft_wrap=True, _environ={"TERM": "xterm"}
    )
    return Screen(console), shown


# what a look is worth


def test_a_whole_epoch_is_told_by_its_rows_alone() -> None:
    assert Look().epoch == 0
    assert of_epoch(7).epoch == 7


@pytest.mark.parametrize(
    "rows",
    [
        of_epoch(7).rows[1:],  # a key is missing
        (*of_epoch(7).rows[:5], *of_epoch(6).rows[5:]),  # some rows are of the epoch before
        (*of_epoch(6).rows[:9], trade(6999)),
        tuple(latest_trades(6990)),  # the middle of an epoch
        (*of_epoch(7).rows[:9], of_epoch(7).rows[9]._replace(price=1.0)),
        (*of_epoch(7).rows, trade(6999)._replace(symbol="YEWS")),
    ],
)
def test_anything_else_is_half_an_epoch(rows: tuple[object, ...]) -> None:
    assert Look(rows).epoch is None  # type: ignore[arg-type]


def test_half_an_epoch_and_a_step_back_are_counted_and_spoil_the_proof(demo: Path) -> None:
    seen = Watched().after(Look()).after(of_epoch(1)).after(of_epoch(1)).after(of_epoch(3))
    assert seen == Watched(looks=4, epochs=2, newest=3, wrong=0)
    assert seen.holds
    assert prove(demo, seen).holds
    back, half = seen.after(of_epoch(2)), seen.after(Look(of_epoch(4).rows[1:]))
    assert back == half == replace(seen, looks=5, wrong=1)
    assert not prove(demo, half).holds
    assert prove(demo, half).to_dict()["watched"] == {"looks": 5, "epochs": 2, "wrong": 1}


def test_a_view_that_nobody_saw_proves_nothing(demo: Path) -> None:
    screen, shown = screen_of(terminal=False)
    unseen = prove(demo, Watched().after(Look()))
    assert not unseen.holds
    screen.proof(unseen)
    assert "The view was never there for its reader." in shown.getvalue()


# the reader


def test_a_reader_sees_each_epoch_and_keeps_it_while_there_is_no_writer(tmp_path: Path) -> None:
    with ViewReader(tmp_path) as view:
        assert view.look() == Look(), "there is no view yet"
        for epoch in (1, 2):  # each by a writer of its own
            change_view(tmp_path, by_symbol(of_epoch(epoch).rows))
            assert view.look().epoch == epoch
            until(lambda epoch=epoch: view.newest.epoch == epoch)  # type: ignore[misc]
    assert view.watched.holds
    assert view.watched.epochs == 2


@pytest.mark.parametrize("value", [b"{}", b"not JSON", b'["a"]', as_json(trade(3))])
def test_a_row_that_is_no_trade_of_its_key_is_told(value: bytes, demo: Path) -> None:
    with open_progress(rocksdb_url(demo / LATEST)) as store, store.session() as session:
        session.put("view", b"ALDR", value)
    with pytest.raises(DamageError, match="the view's row b'ALDR'"):
        prove(demo)
    with ViewReader(demo) as view:
        until(lambda: view._error is not None)
        with pytest.raises(DamageError, match="the view's row"):
            view.look()


# the screen


def test_a_terminal_shows_the_rows_below_all_else_as_they_change(tmp_path: Path) -> None:
    screen, shown = screen_of(terminal=True)
    with ViewReader(tmp_path) as view, screen.live(view):
        with screen.waiting("Starting Spark …"):
            until(lambda: "Starting Spark …" in shown.getvalue())
        for epoch in (1, 2):
            change_view(tmp_path, by_symbol(of_epoch(epoch).rows))
            until(lambda epoch=epoch: f"all of epoch {epoch}" in shown.getvalue())  # type: ignore[misc]
        screen.line("above")
    assert "above" in shown.getvalue()
    for row in of_epoch(2).rows:
        assert f"{row.symbol} {row.price:6.2f}" in shown.getvalue()


def test_off_a_terminal_only_lines_that_stay_are_printed(tmp_path: Path) -> None:
    screen, shown = screen_of(terminal=False)
    change_view(tmp_path, by_symbol(of_epoch(7).rows))
    with ViewReader(tmp_path) as view, screen.live(view):
        with screen.waiting("Starting Spark …"):
            until(lambda: view.watched.looks > 2)
        screen.killed(8, view.look())
    assert shown.getvalue() == (
        "Starting Spark …\n"
        "    8  killed with SIGKILL between save and commit\n"
        f"       its view, as another process reads it: {len(SYMBOLS)} symbols, all of epoch 7\n\n"
    )


def test_the_verdict_says_how_often_the_view_was_half(demo: Path) -> None:
    screen, shown = screen_of(terminal=False)
    screen.proof(prove(demo, Watched(looks=1234, epochs=7, newest=7, wrong=2)))
    assert "read 1 234 times during the run: 2 times half an epoch" in shown.getvalue()
    assert "Exactly once: no." in shown.getvalue()
    assert max(map(len, shown.getvalue().splitlines())) <= 80
