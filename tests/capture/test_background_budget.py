"""Bytes move in the background at their rate, and leave core and disk to an epoch."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seamark.capture import background_budget
from seamark.capture.background_budget import Budget, Stopped
from seamark.capture.state_moves import BackgroundMoves
from tests.capture.test_capture_and_restore import COMMIT
from tests.capture.test_state_moves import moving
from tests.checkpoint_dir.support.directories import make_copy

UNLIMITED = 1 << 40
LONG = 60.0


class Consumer(threading.Thread):
    """Takes three pieces in the background, then makes them durable."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(daemon=True)
        self._budget = budget
        self.taken: list[bytes] = []
        self.is_durable = False
        self.is_stopped = False
        self.has_piece = threading.Event()
        self.may_go_on = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            for piece in self._budget.spent_on(iter([b"a", b"b", b"c"])):
                self.taken.append(bytes(piece))
                self.has_piece.set()
                self.may_go_on.wait(LONG)
            self.is_durable = True
        except Stopped:
            self.is_stopped = True


@pytest.fixture(autouse=True)
def epochs_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_budget, "LONGEST_PAUSE", LONG)


def test_I11_no_piece_moves_while_an_epoch_captures_and_saves() -> None:
    budget = Budget(UNLIMITED)
    budget.pause()
    consumer = Consumer(budget)
    consumer.may_go_on.set()
    consumer.join(0.2)
    assert consumer.taken == []
    budget.resume()
    consumer.join(LONG)
    assert consumer.taken == [b"a", b"b", b"c"]
    assert consumer.is_durable


def test_I11_what_was_written_is_not_made_durable_beside_an_epoch() -> None:
    budget = Budget(UNLIMITED)
    consumer = Consumer(budget)
    assert consumer.has_piece.wait(LONG)
    budget.pause()
    consumer.may_go_on.set()
    consumer.join(0.2)
    assert consumer.taken == [b"a"], "the piece that had begun"
    assert not consumer.is_durable
    budget.resume()
    consumer.join(LONG)
    assert consumer.is_durable


def test_an_epoch_that_takes_very_long_does_not_stop_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_budget, "LONGEST_PAUSE", 0.01)
    budget = Budget(UNLIMITED)
    budget.pause()
    assert list(budget.spent_on(iter([b"a", b"b"]))) == [b"a", b"b"]


def test_a_run_that_ends_in_an_epoch_does_not_wait_for_the_epoch() -> None:
    stopped, lifted = Budget(UNLIMITED), Budget(UNLIMITED)
    for budget in (stopped, lifted):
        budget.pause()
    consumer = Consumer(stopped)
    stopped.stop()
    consumer.join(LONG)
    assert consumer.is_stopped
    lifted.lift()
    assert list(lifted.spent_on(iter([b"a"]))) == [b"a"]


def test_the_background_goes_on_after_an_epoch_whether_it_was_decided_or_undone(
    tmp_path: Path,
) -> None:
    stored = moving(tmp_path / "a")
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    free = moves._budget._no_epoch
    stored.take(0)
    assert free.is_set()
    make_copy(Path(stored.copy.root), 2)
    stored.capture.take(1, COMMIT, full=False)
    assert not free.is_set()
    stored.capture.undone()
    assert free.is_set()
