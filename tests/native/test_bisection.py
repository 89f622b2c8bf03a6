"""Halving finds the first epoch that fails a test, in as few restores as there can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark import limits
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import CheckpointNotFoundError, DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.native import bisection
from seamark.native.bisection import Candidate, Span, Verdict, bisect, restored_test, span_of
from seamark.native.snapshot import take_snapshot
from seamark.store import CheckpointStore, open_store
from seamark.store.inspection import scan
from seamark.store.layout import ObjectLayout
from tests.cli.support.stores import flip
from tests.native.support.growing import GrowingDirectory
from tests.support.counted_blobs import CountedBlobs


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


def test_a_damaged_checkpoint_and_what_builds_on_it_are_left_out(tmp_path: Path) -> None:
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
    assert found.left_out == 3
    assert len(found.tried) <= 2
    # one of them may be the first bad one, and nobody knows
    assert [each.epoch for each in found.between] == [5, 6, 7]


def chain(links: int) -> tuple[CheckpointStore, CountedBlobs]:
    """Checkpoints that each build on the one before and hold no directory of Spark."""
    blobs = CountedBlobs()
    store = CheckpointStore(blobs, ObjectLayout())
    store.save(CheckpointManifest.new(1, epoch=1))
    for i in range(2, links + 1):
        store.save(CheckpointManifest.new(i, epoch=i, is_incremental=True, parent_id=i - 1))
    return store, blobs


def never(epoch: int, directory: Path) -> Verdict:
    raise AssertionError(f"epoch {epoch} was restored to {directory}")


def test_a_long_chain_whose_beginning_is_gone_is_followed_once() -> None:
    links = 60
    store, blobs = chain(links)
    blobs.delete([store._parts.layout.manifest(1)])
    blobs.forget()
    found = bisect(span_of(store), restored_test(store, never))
    assert found.tried == ()
    assert found.left_out == links - 1
    assert [each.epoch for each in found.between] == list(range(2, links + 1))
    assert blobs.reads < 3 * links


def test_a_parent_that_a_listing_has_missed_is_looked_for_before_anything_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = chain(3)
    without = [each for each in scan(store) if each.checkpoint_id != 1]
    monkeypatch.setattr(bisection, "scan", lambda _: iter(without))
    assert [each.links for each in span_of(store).candidates] == [1, 2]


def test_restores_that_fail_again_and_again_end_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, blobs = chain(60)
    monkeypatch.setattr(limits, "MOST_LINKS_IN_VAIN", 200)
    span = span_of(store)
    blobs.forget()
    with pytest.raises(DamageError, match="cannot be restored") as raised:
        bisect(span, restored_test(store, never))
    assert "verify" in str(raised.value.hint)
    assert blobs.reads < 10 * 200


def test_a_store_that_is_pruned_meanwhile_is_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = chain(60)
    monkeypatch.setattr(limits, "MOST_LINKS_IN_VAIN", 200)
    span = span_of(store)
    store.save(CheckpointManifest.new(61, epoch=61))
    store.prune(1)
    assert store.list_ids() == [61]
    found = bisect(span, restored_test(store, never))
    assert {each.verdict for each in found.tried} == {Verdict.SKIPPED}
