"""Events that come a second time are skipped, and numbers go on after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import limits
from seamark.errors import InvalidInputError, RefusedError
from seamark.progress import SequenceDedup, SourceCheckpoint, open_progress

LAST = 2**64 - 1


def after(sequence: int, source: str = "s") -> SequenceDedup:
    return SequenceDedup({source: SourceCheckpoint(sequence)})


def test_what_was_committed_is_skipped_and_equal_counts_as_committed() -> None:
    seen = after(5)
    assert [n for n in range(9) if seen.is_new("s", n)] == [6, 7, 8]


def test_an_event_without_a_number_always_passes() -> None:
    assert after(LAST).is_new("s", None)


def test_an_unknown_source_passes() -> None:
    assert SequenceDedup().is_new("s", 0)
    assert after(5).is_new("t", 1)


def test_sources_do_not_mix() -> None:
    seen = SequenceDedup({"s": SourceCheckpoint(5), "t": SourceCheckpoint(9)})
    seen.advance("s", 7)
    assert (seen.last_sequence("s"), seen.last_sequence("t")) == (7, 9)
    assert seen.last_sequence("u") is None
    assert not seen.is_new("t", 9)


def test_advancing_never_goes_back() -> None:
    seen = after(5)
    for number in (7, 6, 3, 0):
        seen.advance("s", number)
        assert seen.last_sequence("s") == 7
    seen.advance("s", None)
    seen.advance("new", 0)
    assert (seen.last_sequence("s"), seen.last_sequence("new")) == (7, 0)


def test_all_checkpoints_are_what_was_committed_of_every_source() -> None:
    assert SequenceDedup().all_checkpoints() == {}
    seen = SequenceDedup({"s": SourceCheckpoint(5, b"five"), "t": SourceCheckpoint(0)})
    seen.advance("u", 3)
    seen.advance("s", 9)
    found = seen.all_checkpoints()
    assert found == {"s": 9, "t": 0, "u": 3}
    found["s"] = 99
    assert seen.last_sequence("s") == 9  # it was a copy


def test_numbers_begin_at_one_and_go_on_after_the_checkpoint() -> None:
    assert SequenceDedup().next_sequence("s") == 1
    assert after(0).next_sequence("s") == 1
    assert after(41).next_sequence("s") == 42


def test_asking_for_a_number_takes_none_away() -> None:
    seen = after(3)
    assert seen.next_sequence("s") == seen.next_sequence("s") == 4
    seen.advance("s", 4)
    assert seen.next_sequence("s") == 5


def test_after_the_last_number_there_is_none() -> None:
    assert after(LAST - 1).next_sequence("s") == LAST
    with pytest.raises(RefusedError, match="'s' has used up"):
        after(LAST).next_sequence("s")


@pytest.mark.parametrize("number", [-1, 2**64, 1.5, True])
def test_what_is_no_number_is_refused(number: int) -> None:
    with pytest.raises(InvalidInputError):
        after(5).is_new("s", number)
    with pytest.raises(InvalidInputError):
        SequenceDedup().advance("s", number)


def test_an_event_of_a_session_that_failed_passes_again() -> None:
    store = open_progress("memory://")
    seen = SequenceDedup(store.read_all_checkpoints())
    number = seen.next_sequence("s")
    session = store.begin()
    session.stage_checkpoint("s", number)
    store.rollback()
    assert seen.is_new("s", number)
    with store.session() as s:
        s.stage_checkpoint("s", number)
    seen.advance("s", number)
    assert not seen.is_new("s", number)
    again = SequenceDedup(store.read_all_checkpoints())
    assert again.next_sequence("s") == seen.next_sequence("s") == number + 1


def test_as_many_and_as_long_sources_as_are_written_are_read(tmp_path: Path) -> None:
    longest = "\u00e9" * (limits.LONGEST_SOURCE // 2)
    for url in ("memory://", f"rocksdb://{tmp_path / 'progress'}"):
        with open_progress(url) as store:
            with store.session() as session:
                session.stage_checkpoint(longest, 1)
                for number in range(limits.MOST_SOURCES - 1):
                    session.stage_checkpoint(f"s{number}", 1)
            for is_rewind in (False, True):
                with store.session() as session:
                    with pytest.raises(RefusedError, match="at most 10000 sources"):
                        session.stage_checkpoint("one more", 1, allow_rewind=is_rewind)
                    session.stage_checkpoint(longest, 2, allow_rewind=is_rewind)
            assert len(store.read_all_checkpoints()) == limits.MOST_SOURCES
            with store.session() as session:
                session.forget_checkpoints()
                session.stage_checkpoint("one more", 1)
            assert store.read_all_checkpoints() == {"one more": SourceCheckpoint(1)}


def test_a_source_id_that_is_too_long_is_refused() -> None:
    with open_progress("memory://") as store:
        with pytest.raises(InvalidInputError, match=r"'a{200}'… has 10001 bytes"):
            store.stage_checkpoint("a" * (limits.LONGEST_SOURCE + 1), 1)
        assert store.read_all_checkpoints() == {}
