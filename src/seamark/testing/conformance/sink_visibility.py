"""What readers of a sink see: an epoch that is committed, whole and once, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

import msgspec
import pytest

from seamark._redaction import redacted
from seamark.sinks.contract import Identity, foreign_name
from seamark.sinks.read_point import ReadPoint
from seamark.testing.conformance.sink_examples import (
    OLD,
    ReadRows,
    Writer,
    epoch,
    receipt,
    through_json,
)

LARGEST_COMMITTABLE = 16 << 10


class SinkVisibility:
    """Staging, preparing, committing."""

    has_keys: ClassVar[bool]

    def _seen(self, rows: list[int]) -> list[int]:
        """What readers see of these rows."""
        return sorted(set(rows) if self.has_keys else rows)

    def test_staged_rows_are_invisible(self, writer: Writer, visible: ReadRows) -> None:
        writer.stage([1, 2, 3], epoch(1), "a1")
        assert sorted(visible()) == []

    def test_prepared_rows_are_invisible(self, writer: Writer, visible: ReadRows) -> None:
        writer.prepare([1, 2, 3], epoch(1), "a1")
        assert sorted(visible()) == []

    def test_a_commit_shows_every_row_once(self, writer: Writer, visible: ReadRows) -> None:
        writer.show([3, 1, 2, 2], epoch(1), "a1")
        assert sorted(visible()) == self._seen([1, 2, 2, 3]), "equal rows are rows too"

    def test_an_epoch_is_added_to_those_before(self, writer: Writer, visible: ReadRows) -> None:
        writer.show([1, 2], epoch(1), "a1")
        second = writer.prepare([2, 3], epoch(2), "a2")
        assert sorted(visible()) == [1, 2]
        writer.new_handle().commit(second)
        assert sorted(visible()) == self._seen([1, 2, 2, 3])

    def test_an_epoch_without_rows_can_be_committed(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        writer.show([1], epoch(1), "a1")
        nothing = writer.show([], epoch(2), "a2")
        writer.new_handle().commit(nothing)
        writer.show([3], epoch(3), "a3")
        assert sorted(visible()) == [1, 3]

    def test_a_committable_is_small_and_made_of_json(self, writer: Writer) -> None:
        sink = writer.stage(range(1000), epoch(1), "a1")
        committable = sink.prepare()
        assert through_json(committable) == committable
        assert len(json.dumps(committable)) <= LARGEST_COMMITTABLE

    def test_what_a_committable_says_of_its_epoch_is_so(self, writer: Writer) -> None:
        committable = writer.prepare([1], epoch(1), "a1")
        own = msgspec.structs.asdict(receipt(1, "a1"))
        del own["plan"]  # no sink has to tell it
        assert foreign_name(committable, own) is None, "the pipeline takes no other"


class SinkReadPoints:
    """What to read to see exactly the epochs up to one, if the sink can tell."""

    def test_what_to_read_is_the_same_whoever_asks_and_however_often(self, writer: Writer) -> None:
        sink = writer.stage([1, 2], epoch(1), "a1")
        committable = sink.prepare()
        sink.commit(committable)
        point = sink.read_point(committable)
        if point is None:
            pytest.skip("this sink does not say what to read")
        data = msgspec.json.encode(point)
        assert msgspec.json.decode(data, type=ReadPoint) == point, "it is made of JSON"
        assert len(data) <= LARGEST_COMMITTABLE
        assert redacted(data.decode()) == data.decode(), "it holds no secret"
        sink.commit(committable)
        writer.new_handle().commit(through_json(committable))
        for handle in (sink, writer.new_handle()):
            assert handle.read_point(committable) == point
        shown = sink.committed(OLD, 1)
        if shown is not None:
            identity = {name: getattr(shown, name) for name in Identity.__struct_fields__}
            alone = writer.new_handle().read_point(identity)
            assert alone == point, "only what identifies an epoch is needed"

    def test_what_to_read_of_an_epoch_stays_when_later_ones_come(self, writer: Writer) -> None:
        first = writer.show([1], epoch(1), "a1")
        point = writer.new_handle().read_point(first)
        if point is None:
            pytest.skip("this sink does not say what to read")
        second = writer.show([2], epoch(2), "a2")
        handle = writer.new_handle()
        assert handle.read_point(first) == point
        assert handle.read_point(second) not in (None, point)


class SinkRepeats:
    """Doing a thing again, in this process or in another."""

    def test_a_second_commit_changes_nothing(self, writer: Writer, visible: ReadRows) -> None:
        sink = writer.stage([1, 2], epoch(1), "a1")
        committable = sink.prepare()
        for by in (sink, sink, writer.new_handle(), writer.new_handle()):
            by.commit(committable)
            assert sorted(visible()) == [1, 2]

    def test_another_process_commits_from_the_committable_alone(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        committable = writer.prepare([1, 2], epoch(1), "a1")
        writer.new_handle().commit(committable)
        assert sorted(visible()) == [1, 2]

    def test_an_older_epoch_can_be_committed_again(self, writer: Writer, visible: ReadRows) -> None:
        first = writer.show([1], epoch(1), "a1")
        writer.show([2], epoch(2), "a2")
        writer.new_handle().commit(first)
        assert sorted(visible()) == [1, 2]

    def test_several_processes_may_commit_at_once(self, writer: Writer, visible: ReadRows) -> None:
        for number in range(1, 6):
            committable = writer.prepare([number], epoch(number), f"a{number}")
            handles = [writer.new_handle() for _ in range(4)]
            together([partial(sink.commit, committable) for sink in handles])
            assert sorted(visible()) == [*range(1, number + 1)]

    def test_staging_an_attempt_again_replaces_it(self, writer: Writer, visible: ReadRows) -> None:
        sink = writer.stage([1, 2, 3], epoch(1), "a1")
        writer.stage([4], epoch(1), "a1", by=sink)
        sink.commit(sink.prepare())
        assert sorted(visible()) == [4]

    def test_an_attempt_that_was_prepared_can_be_staged_again(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        writer.prepare([1, 2, 3], epoch(1), "a1")
        writer.show([4], epoch(1), "a1")
        assert sorted(visible()) == [4]

    def test_two_attempts_of_one_epoch_are_not_mixed_up(
        self, writer: Writer, visible: ReadRows
    ) -> None:
        writer.prepare([1, 2], epoch(1), "a1")
        second = writer.prepare([3], epoch(1), "a2")
        writer.stage([4, 5], epoch(1), "a3")
        writer.new_handle().commit(second)
        assert sorted(visible()) == [3]


def together(actions: list[Callable[[], object]]) -> None:
    """Start all actions at once; the first error of any."""
    start = threading.Barrier(len(actions))

    def one(action: Callable[[], object]) -> None:
        start.wait(30)
        action()

    with ThreadPoolExecutor(len(actions)) as pool:
        for done in [pool.submit(one, action) for action in actions]:
            done.result()
