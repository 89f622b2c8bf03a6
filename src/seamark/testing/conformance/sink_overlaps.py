"""Another process at work between any two steps of a sink.

Somebody looks, a start finishes what a driver is still finishing, or a driver that was taken for
dead wakes up when its successor has cleared away what it had begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest

from seamark.errors import LineageError, SeamarkError
from seamark.sinks.contract import Committable, Receipt, Sink, takes_timeline
from seamark.testing.conformance.interleaving import Overlap, Steps, Work, spread
from seamark.testing.conformance.sink_examples import (
    OLD,
    ReadRows,
    Writer,
    epoch,
    receipt,
    through_json,
)
from seamark.testing.conformance.sink_lineage import reminded


@dataclass(frozen=True)
class Stopped:
    """A process that has prepared an epoch, whose only row is its number, and where it stops."""

    number: int
    at: int
    sink: Sink
    committable: Committable

    @property
    def receipt(self) -> Receipt:
        return receipt(self.number, f"a{self.number}")

    def commit(self) -> None:
        self.sink.commit(self.committable)


class SinkOverlaps:
    """Two processes on one target, one of them stopped before one of its steps for a while."""

    can_take_back: ClassVar[bool]
    overlaps: ClassVar[int] = 16
    """Before how many steps, at most, another process does its work; they are evenly spread."""
    overlap_calls: ClassVar[str] = ""
    """Which calls of libraries and of the operating system are such steps: those whose name this
    regular expression finds. For a sink with a slow server, where each try takes long."""
    patience: ClassVar[float] = 0.3
    """Seconds until the other process is taken to wait for the one that is stopped."""

    def test_a_commit_between_two_steps_of_a_commit_shows_the_epoch_once(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        for stopped in self._stopped_commits(writer):
            by_another = partial(writer.new_handle().commit, stopped.committable)
            met = self._overlap(stopped, by_another)
            assert (met.first_error, met.other_error) == (None, None), met
            self._check_all_shown(stopped, writer, visible, met)

    def test_a_commit_between_two_steps_of_one_from_the_committable_alone_shows_it_once(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        """Two processes start at the same time, and both finish what a dead one has decided."""
        for stopped in self._stopped_commits(writer, alone=True):
            by_another = partial(writer.new_handle().commit, stopped.committable)
            met = self._overlap(stopped, by_another)
            assert (met.first_error, met.other_error) == (None, None), met
            self._check_all_shown(stopped, writer, visible, met)

    def test_an_abort_between_two_steps_of_a_commit_stops_it_or_leaves_it_alone(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        for stopped in self._stopped_commits(writer):
            met = self._overlap(stopped, lambda: _clear(writer.new_handle()))
            assert met.other_error is None, met
            if self._is_shown(stopped, visible, met):
                assert met.first_error is None, (met, "it is shown, so it has not failed")
            else:
                self._check_refused(stopped, writer, visible, met)
                writer.show([stopped.number], epoch(stopped.number), f"b{stopped.number}")
            assert sorted(visible()) == [*range(1, stopped.number + 1)], met

    def test_a_commit_between_two_steps_of_an_abort_fails_or_is_left_alone(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        self._prepared(writer, 1).commit()
        steps = self._steps(self._prepared(writer, 2).sink)
        count = steps.count(partial(_clear, writer.new_handle()))
        writer.show([2], epoch(2), "b2")
        for number, at in enumerate(spread(count, self.overlaps), start=3):
            stopped = self._prepared(writer, number, at)
            met = steps.overlap(
                partial(_clear, writer.new_handle()), at, stopped.commit, self.patience
            )
            assert met.first_error is None, met
            assert writer.new_handle().leftovers() == [], met
            if self._is_shown(stopped, visible, met):
                assert met.other_error is None, (met, "it is shown, so it has not failed")
                if not self.can_take_back:
                    continue
                taken = writer.new_handle().unpublish_after(number - 1)
                assert taken == [number], (met, "all that it needs is still there")
            else:
                _require_told(met.other_error, met)
                if stopped.sink.guarantee.is_transactional:
                    assert met.other_error is not None, (met, "it shows nothing, so it has failed")
            writer.show([number], epoch(number), f"b{number}")
            assert sorted(visible()) == [*range(1, number + 1)], met

    def test_a_new_history_between_two_steps_of_a_commit_is_not_mixed_with_the_old_one(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        """A rollback, and what runs after it, while a driver of before is still committing."""
        expected = [1, 2]
        for stopped in self._stopped_commits(writer):
            row, timeline = -stopped.number, _timeline(stopped.number)

            def roll_back(s: Stopped = stopped, row: int = row, timeline: str = timeline) -> None:
                sink = writer.new_handle()
                _clear(sink)
                if self.can_take_back:
                    sink.unpublish_after(s.number - 1)
                writer.show([row], epoch(s.number, timeline), f"b{s.number}")

            met = self._overlap(stopped, roll_back)
            if met.other_error is None:
                expected.append(row)
                _require_told(met.first_error, met)
            else:
                assert not self.can_take_back, met
                assert isinstance(met.other_error, LineageError), met
                assert met.first_error is None, met
                expected.append(stopped.number)
            assert sorted(visible()) == sorted(expected), met

    def test_a_new_history_between_two_steps_of_a_rollback_stays(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        """A driver that hangs in a rollback wakes up when its successor has gone on."""
        if not (self.can_take_back and takes_timeline(writer.new_handle())):
            pytest.skip("this sink cannot take anything back, or not that of one timeline alone")
        writer.show([1], epoch(1), "a1")
        steps = self._steps(writer.new_handle())
        self._show_two(writer, 0)
        count = steps.count(partial(writer.new_handle().unpublish_after, 1, _timeline(0)))
        for turn, at in enumerate(spread(count, self.overlaps), start=1):
            old, new = 2 * turn, 2 * turn + 1
            self._show_two(writer, old)

            def roll_back(old: int = old, new: int = new) -> None:
                writer.new_handle().unpublish_after(1, _timeline(old))
                self._show_two(writer, new)

            stopped = partial(writer.new_handle().unpublish_after, 1, _timeline(old))
            met = steps.overlap(stopped, at, roll_back, self.patience)
            assert met.other_error is None, met
            _require_told(met.first_error, met)
            assert sorted(visible()) == [1, new * 10 + 2, new * 10 + 3], met
            assert writer.new_handle().unpublish_after(1, _timeline(new)) == [2, 3], met

    def _show_two(self, writer: Writer, history: int) -> None:
        for number in (2, 3):
            row, about = history * 10 + number, epoch(number, _timeline(history))
            writer.show([row], about, f"h{history}-{number}")

    def test_looks_between_two_steps_of_a_commit_find_all_of_the_epoch_or_nothing(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        reminded(writer)
        for stopped in self._stopped_commits(writer):
            met = self._overlap(stopped, partial(_look, writer, stopped))
            assert (met.first_error, met.other_error) == (None, None), met
            _check_look(stopped, met.other, met)
            self._check_all_shown(stopped, writer, visible, met)

    def test_a_commit_between_two_steps_of_a_look_is_seen_or_not(self, writer: Writer) -> None:
        reminded(writer)
        self._prepared(writer, 1).commit()
        counted = self._prepared(writer, 2)
        steps = self._steps(counted.sink)
        count = steps.count(partial(_look, writer, counted))
        counted.commit()
        for number, at in enumerate(spread(count, self.overlaps), start=3):
            stopped = self._prepared(writer, number, at)
            look = partial(_look, writer, stopped)
            met = steps.overlap(look, at, stopped.commit, self.patience)
            assert (met.first_error, met.other_error) == (None, None), met
            _check_look(stopped, met.first, met)

    # what the rules have in common

    def _stopped_commits(self, writer: Writer, *, alone: bool = False) -> Iterator[Stopped]:
        """For each step of a commit an epoch that waits for it; ``alone`` in a new process."""
        self._prepared(writer, 1).commit()
        counted = self._prepared(writer, 2, alone=alone)
        count = self._steps(counted.sink).count(counted.commit)
        for number, at in enumerate(spread(count, self.overlaps), start=3):
            yield self._prepared(writer, number, at, alone=alone)

    def _prepared(
        self, writer: Writer, number: int, at: int = 0, *, alone: bool = False
    ) -> Stopped:
        sink = writer.stage([number], epoch(number), f"a{number}")
        committable = through_json(sink.prepare())
        return Stopped(number, at, writer.new_handle() if alone else sink, committable)

    def _overlap(self, stopped: Stopped, by: Work) -> Overlap:
        steps = self._steps(stopped.sink)
        return steps.overlap(stopped.commit, stopped.at, by, self.patience)

    def _steps(self, sink: Sink) -> Steps:
        return Steps(type(sink), self.overlap_calls)

    def _is_shown(self, stopped: Stopped, visible: ReadRows, met: Overlap) -> bool:
        shown = sorted(visible())
        before = [*range(1, stopped.number)]
        assert shown in (before, [*before, stopped.number]), met
        return shown != before

    def _check_all_shown(
        self, stopped: Stopped, writer: Writer, visible: ReadRows, met: Overlap
    ) -> None:
        assert self._is_shown(stopped, visible, met), met
        after = writer.new_handle()
        assert after.leftovers() == [], met
        if after.remembers:
            assert after.committed(OLD, stopped.number) == stopped.receipt, met

    def _check_refused(
        self, stopped: Stopped, writer: Writer, visible: ReadRows, met: Overlap
    ) -> None:
        _require_told(met.first_error, met)
        sink = writer.new_handle()
        if sink.guarantee.is_transactional:
            assert met.first_error is not None, (met, "a commit that shows nothing has failed")
            with pytest.raises(SeamarkError):
                sink.commit(stopped.committable)
        assert not self._is_shown(stopped, visible, met), met


def _clear(sink: Sink) -> None:
    for attempt in sink.leftovers():
        sink.abort(attempt)


@dataclass(frozen=True)
class Look:
    """What a process is told about a target when it starts."""

    newest: Receipt | None
    committed: Receipt | None
    leftovers: list[str]


def _look(writer: Writer, stopped: Stopped) -> Look:
    sink = writer.new_handle()
    return Look(sink.newest(), sink.committed(OLD, stopped.number), sink.leftovers())


def _check_look(stopped: Stopped, look: object, met: Overlap) -> None:
    assert isinstance(look, Look), met
    before = receipt(stopped.number - 1, f"a{stopped.number - 1}")
    assert look.newest in (before, stopped.receipt), met
    assert look.committed in (None, stopped.receipt), met
    assert look.leftovers in ([], [stopped.receipt.attempt]), met
    if look.committed is None:  # it was not shown yet when the newest one was asked for
        assert look.newest == before, met


def _timeline(number: int) -> str:
    return f"0198c000-0000-7000-8000-{number:012x}"


def _require_told(error: Exception | None, met: Overlap) -> None:
    """Whoever was overtaken is told what has happened, and what to do."""
    assert error is None or isinstance(error, SeamarkError), met
    assert type(error) is not SeamarkError, (met, "it says what kind of error it is")
