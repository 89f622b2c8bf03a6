"""A recovery report says all that was done, for people in 80 columns and for programs as JSON."""

from __future__ import annotations

import json

import pytest

from seamark.pipeline.telemetry.reports import StartReport
from tests.pipeline.support.epochs import RECOVERY, recovery


def test_a_recovery_is_laid_out_under_labels() -> None:
    assert RECOVERY.lines() == [
        "Recovery                                              0.18 s",
        "  chosen       checkpoint 15 · epoch 15 · verified (SHA-256, 3 files, 41 KiB)",
        "  finished     sink large: committed from its committable",
        "               sink bars:  already committed",
        "  working copy kept, commits/14 written",
    ]


def test_what_was_skipped_comes_before_what_was_chosen() -> None:
    report = recovery(
        skipped=[
            (17, "manifest.json: not JSON"),
            (16, "state.bin: SHA-256 differs (expected 3f9a…, found 71c0…), second replica too"),
        ],
        aborted=["staged epoch 16 of sink large", "staged epoch 16 of sink bars"],
        finished={},
        notes=["sink late starts at epoch 16"],
    )
    assert report.lines()[1:] == [
        "  skipped      checkpoint 17: manifest.json: not JSON",
        "               checkpoint 16: state.bin: SHA-256 differs (expected 3f9a…, found",
        "               71c0…), second replica too",
        "  chosen       checkpoint 15 · epoch 15 · verified (SHA-256, 3 files, 41 KiB)",
        "  aborted      staged epoch 16 of sink large",
        "               staged epoch 16 of sink bars",
        "  working copy kept, commits/14 written",
        "  note         sink late starts at epoch 16",
    ]


def test_a_fresh_start_says_so() -> None:
    report = StartReport(seconds=0.02, chosen_id=None, epoch=None, fresh_start=True)
    assert report.lines() == [
        "Recovery                                              0.02 s",
        "  chosen       nothing: a fresh start",
    ]


def test_a_start_from_elsewhere_has_an_epoch_and_no_checkpoint() -> None:
    report = recovery(chosen_id=None, epoch=1204, verified="")
    assert report.lines()[1] == "  chosen       no checkpoint · epoch 1204"


def test_an_error_of_several_lines_is_one_entry_and_paths_stay_whole() -> None:
    path = "s3://bucket/" + "deep/" * 20 + "manifest-000016.json"
    lines = recovery(skipped=[(16, f"cannot be read\n  {path}\n  Try again.")]).lines()
    assert lines[1:4] == [
        "  skipped      checkpoint 16: cannot be read",
        f"               {path}",
        "               Try again.",
    ]


@pytest.mark.parametrize("text", ["word " * 60, "a-hyphenated-word " * 20])
def test_no_line_of_words_is_longer_than_80_columns(text: str) -> None:
    report = recovery(
        skipped=[(16, text)], finished={"s": text}, aborted=[text], working_copy=text, notes=[text]
    )
    assert max(map(len, report.lines())) <= 80


def test_the_report_is_json_and_complete() -> None:
    report = recovery(skipped=[(16, "torn")], aborted=["x"], notes=["y"])
    assert json.loads(json.dumps(report.to_dict())) == {
        "seconds": 0.183,
        "chosen_id": 15,
        "epoch": 15,
        "fresh_start": False,
        "skipped": [{"checkpoint_id": 16, "reason": "torn"}],
        "damaged": 0,
        "verified": "SHA-256, 3 files, 41 KiB",
        "finished": {"large": "committed from its committable", "bars": "already committed"},
        "aborted": ["x"],
        "working_copy": "kept, commits/14 written",
        "copy_outcome": "kept",
        "restored_bytes": 0,
        "notes": ["y"],
    }


def test_the_dictionary_is_a_copy() -> None:
    report = recovery()
    report.to_dict()["finished"].clear()
    assert report == RECOVERY
