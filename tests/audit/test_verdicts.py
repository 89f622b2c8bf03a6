"""A difference has a name: lost, doubled, edited, exchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seamark.audit.expectations import EpochRows, SinkHistory
from seamark.audit.verdicts import Result, Shown, verdict_of
from seamark.spark.row_digests import RowDigest

TEN = RowDigest(10, "a" * 32)
OTHER = RowDigest(10, "b" * 32)
EPOCHS = tuple(
    EpochRows(epoch=number, checkpoint_id=number, own=own, since=1, total=own)
    for number, own in ((1, TEN), (2, OTHER), (3, RowDigest.empty()))
)
KNOWN = SinkHistory(sink="s", kind="files", target="/t", epochs=EPOCHS)


@pytest.mark.parametrize(
    ("found", "result", "text"),
    [
        (TEN, Result.OK, ""),
        (RowDigest(9, "c" * 32), Result.LOST, "1 row of 10 missing"),
        (RowDigest.empty(), Result.LOST, "10 rows of 10 missing: nothing is left"),
        (RowDigest(12, "c" * 32), Result.DOUBLED, "2 rows too many"),
        (TEN + TEN, Result.DOUBLED, "10 rows too many (every row is there twice)"),
        (RowDigest(10, "c" * 32), Result.EDITED, "10 rows, as many as were written, but not the"),
        (OTHER, Result.EXCHANGED, "it shows the rows of epoch 2"),
    ],
)
def test_every_difference_has_a_name(found: RowDigest, result: Result, text: str) -> None:
    verdict = verdict_of(Shown(first=1, last=1, expected=TEN, found=found), KNOWN)
    assert verdict.result is result
    assert verdict.text.startswith(text)
    assert verdict.result.is_damage == (result is not Result.OK)
    assert (verdict.expected_rows, verdict.found_rows) == (10, found.rows)


def test_rows_that_cannot_be_read_are_damage_and_those_that_nobody_knows_are_not() -> None:
    broken = verdict_of(Shown(first=1, last=1, expected=TEN, damage="a file is gone"), KNOWN)
    assert (broken.result, broken.text) == (Result.UNREADABLE, "a file is gone")
    assert broken.result.is_damage
    unknown = verdict_of(Shown(first=1, last=4, note="why not"), KNOWN)
    assert (unknown.result, unknown.text, unknown.epochs) == (
        Result.UNCOMPARED,
        "why not",
        "1 to 4",
    )
    assert not unknown.result.is_damage


def test_rows_that_can_only_be_counted_are_compared_by_their_number() -> None:
    counted = RowDigest(10, "0" * 32)
    shown = Shown(
        first=1, last=1, expected=TEN, found=counted, is_counted=True, note="only counted"
    )
    assert verdict_of(shown, KNOWN).result is Result.OK
    fewer = Shown(first=1, last=1, expected=TEN, found=RowDigest(9, "0" * 32), is_counted=True)
    assert verdict_of(fewer, KNOWN).result is Result.LOST


@pytest.mark.parametrize(("first", "last"), [(2, 2), (1, 3)])
def test_rows_that_came_out_different_after_their_checkpoint_was_lost_are_not_called_edited(
    first: int, last: int
) -> None:
    newest = replace(EPOCHS[-1], computed_again=(2,))
    known = replace(KNOWN, epochs=(*EPOCHS[:-1], newest))
    for found in (RowDigest(10, "c" * 32), RowDigest(9, "c" * 32)):
        verdict = verdict_of(Shown(first=first, last=last, expected=OTHER, found=found), known)
        assert verdict.result is Result.UNCOMPARED
        assert "epoch 2 lost its checkpoint and was computed again" in verdict.text
    gone = Shown(first=first, last=last, expected=OTHER, found=RowDigest.empty())
    assert verdict_of(gone, known).result is Result.LOST
    other = Shown(first=1, last=1, expected=TEN, found=RowDigest(10, "c" * 32))
    assert verdict_of(other, known).result is Result.EDITED


def test_files_that_are_proven_by_their_bytes_are_fine_whatever_their_rows_read_as() -> None:
    shown = Shown(first=1, last=1, expected=TEN, found=OTHER, is_proven=True)
    assert verdict_of(shown, KNOWN).result is Result.OK
