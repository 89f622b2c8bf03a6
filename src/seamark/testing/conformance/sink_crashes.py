"""What the next process finds after a crash between any two steps, and how it continues."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest

from seamark.errors import SeamarkError
from seamark.sinks.contract import Sink
from seamark.testing.conformance.sink_examples import NEW, MakeFrame, ReadRows, Writer, epoch


def clear(sink: Sink) -> None:
    """What a start does before it runs an epoch again."""
    for attempt in sink.leftovers():
        sink.abort(attempt)
    assert sink.leftovers() == [], "a second look finds nothing"


class SinkAborts:
    """Removing what was staged, by token."""

    def test_leftovers_are_what_was_staged_and_not_committed(self, writer: Writer) -> None:
        assert writer.new_handle().leftovers() == []
        writer.stage([1], epoch(1), "a1")
        second = writer.prepare([2], epoch(1), "a2")
        assert sorted(writer.new_handle().leftovers()) == ["a1", "a2"]
        writer.new_handle().commit(second)
        assert writer.new_handle().leftovers() == ["a1"]
        writer.new_handle().abort("a1")
        assert writer.new_handle().leftovers() == []

    def test_abort_removes_only_its_own_token(self, writer: Writer, visible: ReadRows) -> None:
        writer.prepare([1, 2], epoch(1), "a1")
        ours = writer.prepare([3], epoch(1), "a10")
        writer.new_handle().abort("a1")
        assert writer.new_handle().leftovers() == ["a10"]
        writer.new_handle().commit(ours)
        assert sorted(visible()) == [3]

    def test_aborting_nothing_is_harmless(self, writer: Writer, visible: ReadRows) -> None:
        writer.show([1], epoch(1), "a1")
        writer.stage([2], epoch(2), "a2")
        for attempt in ("never-staged", "a2", "a2"):
            writer.new_handle().abort(attempt)
        assert sorted(visible()) == [1]

    def test_abort_after_the_commit_takes_nothing_away(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        committable = writer.show([1, 2], epoch(1), "a1")
        writer.new_handle().abort("a1")
        assert sorted(visible()) == [1, 2]
        writer.new_handle().commit(committable)
        assert sorted(visible()) == [1, 2]

    def test_a_commit_after_the_abort_by_another_is_refused_and_shows_nothing(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        """A writer that was taken for dead wakes up after its successor has rolled back."""
        writer.show([1], epoch(1), "a1")
        late = writer.stage([2, 3], epoch(2), "a2")
        committable = late.prepare()
        clear(writer.new_handle())
        for handle in (late, writer.new_handle()):
            # a sink that keeps nothing for other processes has nothing to tell an abort by
            exactly_once = handle.guarantee.is_transactional
            with pytest.raises(SeamarkError) if exactly_once else nullcontext():
                handle.commit(committable)
            assert sorted(visible()) == [1]
        writer.show([4], epoch(2, NEW), "a3")
        assert sorted(visible()) == [1, 4]
        clear(writer.new_handle())
        assert sorted(visible()) == [1, 4]


class SinkCrashes:
    """A process dies without any clean-up, and a new handle takes over."""

    def test_a_death_while_staging_is_cleared_and_run_again(
        self, writer: Writer, visible: ReadRows, failing_frame: MakeFrame
    ) -> None:
        dead = writer.new_handle()
        with pytest.raises(Exception, match="died on the way"):
            dead.stage(failing_frame([1, 2]), epoch(1), "a1")
        assert sorted(visible()) == []
        self._run_again(writer, visible)

    def test_a_death_after_staging_is_cleared_and_run_again(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        writer.stage([1, 2], epoch(1), "a1")
        assert writer.new_handle().leftovers() == ["a1"]
        self._run_again(writer, visible)

    def test_a_death_after_preparing_is_cleared_and_run_again(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        writer.prepare([1, 2], epoch(1), "a1")
        assert writer.new_handle().leftovers() == ["a1"]
        self._run_again(writer, visible)

    def _run_again(self, writer: Writer, visible: ReadRows) -> None:
        clear(writer.new_handle())
        assert sorted(visible()) == []
        writer.show([1, 2], epoch(1), "a2")
        assert sorted(visible()) == [1, 2]
        clear(writer.new_handle())
        assert sorted(visible()) == [1, 2]

    def test_a_death_after_the_decision_is_finished_by_the_next(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        writer.stage([7, 8], epoch(1), "a1")
        decided = writer.prepare([1, 2], epoch(1), "a2")
        after = writer.new_handle()
        after.commit(decided)
        clear(after)
        assert sorted(visible()) == [1, 2]

    def test_a_death_after_the_commit_is_seen_and_left_alone(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        decided = writer.show([1, 2], epoch(1), "a1")
        after = writer.new_handle()
        after.commit(decided)
        clear(after)
        writer.show([3], epoch(2), "a2")
        assert Counter(visible()) == Counter([1, 2, 3])

    def test_deaths_in_a_row_leave_nothing_behind(self, writer: Writer, visible: ReadRows) -> None:
        for number in range(1, 4):
            clear(writer.new_handle())
            writer.stage([100 + number], epoch(1), f"a{number}")
        for number in range(4, 7):
            clear(writer.new_handle())
            writer.prepare([100 + number], epoch(1), f"a{number}")
        clear(writer.new_handle())
        writer.show([1], epoch(1), "a7")
        assert sorted(visible()) == [1]
