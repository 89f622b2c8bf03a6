"""What a sink remembers, and that it never takes one history for another."""

from __future__ import annotations

from typing import ClassVar

import pytest

from seamark.errors import LineageError, RefusedError
from seamark.sinks.contract import Epoch, Sink
from seamark.testing.conformance.sink_examples import NEW, OLD, ReadRows, Writer, epoch, receipt


def reminded(writer: Writer) -> Sink:
    """A new handle of a sink that remembers what others committed."""
    sink = writer.new_handle()
    if not sink.remembers:
        pytest.skip("this sink says that it does not remember")
    return sink


class SinkLineage:
    """An epoch of one history in the place of another's."""

    def test_the_same_epoch_of_another_timeline_is_refused(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        self._refused(epoch(1, NEW), writer, visible)

    def test_the_same_epoch_of_other_input_is_refused(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        self._refused(epoch(1, fingerprint="of-other-input"), writer, visible)

    def _refused(self, other: Epoch, writer: Writer, visible: ReadRows) -> None:
        first = writer.show([1, 2], epoch(1), "a1")
        second = writer.prepare([3], other, "a2")
        for _ in range(2):
            with pytest.raises(LineageError):
                writer.new_handle().commit(second)
            assert sorted(visible()) == [1, 2]
        writer.new_handle().commit(first)
        sink = writer.new_handle()
        if sink.remembers:
            assert sink.committed(OLD, 1) == receipt(1, "a1")
        sink.abort("a2")
        assert sorted(visible()) == [1, 2]


class SinkLedger:
    """committed and newest."""

    def test_nothing_is_committed_before_the_commit(self, writer: Writer) -> None:
        sink = reminded(writer)
        assert (sink.committed(OLD, 1), sink.newest()) == (None, None)
        writer.stage([1], epoch(1), "a1")
        writer.prepare([2], epoch(1), "a2")
        for handle in (sink, writer.new_handle()):
            assert (handle.committed(OLD, 1), handle.newest()) == (None, None)

    def test_a_target_that_is_not_prepared_yet_shows_nothing(self, writer: Writer) -> None:
        sink = writer.opened()
        assert (sink.committed(OLD, 1), sink.newest(), sink.leftovers()) == (None, None, [])
        sink.abort("a1")
        sink.prepare_target()
        sink.prepare_target()
        assert sink.newest() is None

    def test_a_new_handle_knows_all_about_what_was_committed(self, writer: Writer) -> None:
        reminded(writer)
        writer.show([1], epoch(1), "a1")
        writer.show([], epoch(2), "a2")
        sink = writer.new_handle()
        assert sink.committed(OLD, 1) == receipt(1, "a1")
        assert sink.committed(OLD, 2) == receipt(2, "a2")
        assert sink.committed(OLD, 3) is None

    def test_an_epoch_of_another_timeline_is_told_too(self, writer: Writer) -> None:
        reminded(writer)
        writer.show([1], epoch(1), "a1")
        assert writer.new_handle().committed(NEW, 1) == receipt(1, "a1")

    def test_newest_is_the_highest_number(self, writer: Writer) -> None:
        reminded(writer)
        for number in (999_999, 1_000_000):
            writer.show([number], epoch(number), f"a{number}")
            assert writer.new_handle().newest() == receipt(number, f"a{number}")


class SinkTakingBack:
    """unpublish_after, for a rollback."""

    can_take_back: ClassVar[bool]

    def test_later_epochs_are_taken_back(self, writer: Writer, visible: ReadRows) -> None:
        for number in (1, 2, 3):
            writer.show([number], epoch(number), f"a{number}")
        sink = writer.new_handle()
        if not self.can_take_back:
            with pytest.raises(RefusedError):
                sink.require_unpublish_after(1)
            with pytest.raises(RefusedError):
                sink.unpublish_after(1)
            assert sorted(visible()) == [1, 2, 3]
            return
        sink.require_unpublish_after(1)
        assert sorted(visible()) == [1, 2, 3]
        assert sorted(sink.unpublish_after(1)) == [2, 3]
        assert sorted(visible()) == [1]
        if sink.remembers:
            after = writer.new_handle()
            assert after.newest() == receipt(1, "a1")
            assert (after.committed(OLD, 2), after.committed(OLD, 3)) == (None, None)

    def test_taking_back_again_changes_nothing(self, writer: Writer, visible: ReadRows) -> None:
        self._skip_unless_possible()
        writer.show([1], epoch(1), "a1")
        writer.show([2], epoch(2), "a2")
        assert writer.new_handle().unpublish_after(2) == []
        assert sorted(visible()) == [1, 2]
        assert writer.new_handle().unpublish_after(1) == [2]
        assert writer.new_handle().unpublish_after(1) == []
        assert sorted(visible()) == [1]
        assert writer.new_handle().unpublish_after(0) == [1]
        assert sorted(visible()) == []

    def test_a_new_timeline_commits_the_epochs_anew(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        self._skip_unless_possible()
        first = writer.show([1], epoch(1), "a1")
        writer.show([2], epoch(2), "a2")
        for turn, timeline in enumerate((NEW, OLD, NEW)):
            writer.new_handle().unpublish_after(1)
            writer.show([20 + turn], epoch(2, timeline), f"b{turn}")
            writer.new_handle().commit(first)
            assert sorted(visible()) == [1, 20 + turn]
            sink = writer.new_handle()
            if sink.remembers:
                assert sink.committed(timeline, 2) == receipt(2, f"b{turn}", timeline)

    def _skip_unless_possible(self) -> None:
        if not self.can_take_back:
            pytest.skip("this sink says that it cannot take anything back")
