"""Halving finds the first epoch that fails a test, in as few restores as there can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import CheckpointNotFoundError, InvalidInputError
from seamark.native.bisection import Candidate, Span, Verdict, bisect, restored_test, span_of
from seamark.native.snapshot import take_snapshot
from seamark.store import open_store
from tests.cli.support.stores import flip
from tests.native.support.growing import GrowingDirectory


def span(epochs: int) -> Span:
    return Span(tuple(Candidate(epoch, epoch + 100) for epoch in range(1, epochs + 1)))


@given(st.integers(0, 300), st.data())
def test_the_first_bad_epoch_is_found_in_the_logarithm_of_their_number(
    epochs: int, data: st.DataObject
) -> None:
    first_bad = data.draw(st.integers(1, epochs + 1))
    found = bisect(span(epochs), lambda c: Verdict.BAD if c.epoch >= first_bad else Verdict.GOOD)
    assert (found.first_bad.epoch if found.first_bad else epochs + 1) == first_bad
    assert (found.last_good.epoch if found.last_good else 0) == first_bad - 1
    assert found.between == ()
    assert len(found.tried) <= epochs.bit_length()


@given(st.integers(1, 60), st.data())
def test_an_epoch_that_says_nothing_is_left_out_and_named_when_it_matters(
    epochs: int, data: st.DataObject
) -> None:
    first_bad = data.draw(st.integers(1, epochs + 1))
    silent = data.draw(st.sets(st.integers(1, epochs)))

    def test(candidate: Candidate) -> Verdict:
        if candidate.epoch in silent:
            return Verdict.SKIPPED
        return Verdict.BAD if candidate.epoch >= first_bad else Verdict.GOOD

    found = bisect(span(epochs), test)
    known = [epoch for epoch in range(1, epochs + 1) if epoch not in silent]
    bad = min((epoch for epoch in known if epoch >= first_bad), default=None)
    good = max((epoch for epoch in known if epoch < first_bad), default=None)
    assert (found.first_bad.epoch if found.first_bad else None) == bad
    assert (found.last_good.epoch if found.last_good else None) == good
    assert {candidate.epoch for candidate in found.between} <= silent
    assert len({each.epoch for each in found.tried}) == len(found.tried)


def filled(root: Path, batches: int) -> Path:
    """A store with a checkpoint of every batch of a query; batch N has the state N + 1."""
    directory = GrowingDirectory(root / "query")
    with open_store(root / "store") as store:
        for _ in range(batches):
            directory.run_batch()
            take_snapshot(LocalDirectory(str(directory.root)), store)
    return root / "store"


@pytest.mark.slow
def test_a_planted_fault_among_200_epochs_is_found_in_nine_restores(tmp_path: Path) -> None:
    restored = []

    def judge(epoch: int, directory: Path) -> Verdict:
        # it is the directory of that very epoch
        assert sorted(path.name for path in (directory / "commits").iterdir())[-1] == str(epoch - 1)
        restored.append(epoch)
        return Verdict.BAD if epoch >= 137 else Verdict.GOOD

    with open_store(filled(tmp_path, 200)) as store:
        found = bisect(span_of(store), restored_test(store, judge))
    assert found.first_bad is not None
    assert found.first_bad.epoch == 137
    assert found.last_good is not None
    assert found.last_good.epoch == 136
    assert len(restored) <= 9


def test_only_what_lies_between_good_and_bad_is_tested(tmp_path: Path) -> None:
    with open_store(filled(tmp_path, 12)) as store:
        ids = store.list_ids()
        between = span_of(store, good=ids[3], bad=ids[7])
        assert [candidate.checkpoint_id for candidate in between.candidates] == ids[4:7]
        found = bisect(between, lambda _: Verdict.GOOD)
        assert found.first_bad is not None
        assert found.first_bad.checkpoint_id == ids[7]
        with pytest.raises(InvalidInputError, match="must be before"):
            span_of(store, good=ids[7], bad=ids[3])
        with pytest.raises(CheckpointNotFoundError, match="given as good"):
            span_of(store, good=999)


def test_a_damaged_checkpoint_and_what_builds_on_it_are_skipped(tmp_path: Path) -> None:
    url = filled(tmp_path, 7)
    with open_store(url) as store:
        candidates = span_of(store).candidates
    damaged = candidates[3]
    (manifest,) = url.glob(f"**/*{damaged.checkpoint_id:06}*/manifest.json")
    flip(manifest)
    judged = []

    def judge(epoch: int, _: Path) -> Verdict:
        judged.append(epoch)
        return Verdict.BAD if epoch >= 6 else Verdict.GOOD

    with open_store(url) as store:
        found = bisect(span_of(store), restored_test(store, judge))
    # what builds on it cannot be restored either
    assert found.last_good == candidates[2]
    assert judged
    assert not {candidate.epoch for candidate in candidates[3:]}.intersection(judged)
    assert [each.verdict for each in found.tried].count(Verdict.SKIPPED) == 3
