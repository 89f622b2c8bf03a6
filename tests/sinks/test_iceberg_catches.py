"""The suite is worth something for Iceberg too: a sink that lacks one precaution falls to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamark.sinks.iceberg import commits
from seamark.sinks.iceberg.marks import Next, Output
from seamark.sinks.iceberg.sink import IcebergSink
from seamark.sinks.iceberg.staging import Staging
from seamark.testing import SinkSuite
from seamark.testing.conformance.sink_examples import Writer
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten

Break = Callable[[pytest.MonkeyPatch], None]


def commits_without_a_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits, "judged", lambda *_: Next.COMMIT)


def takes_any_epoch_for_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits, "judged", lambda mark, *_: Next.ALREADY_SHOWN if mark else Next.COMMIT)


def clears_nothing_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "settle", lambda *_: None)


def leaves_what_was_staged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IcebergSink, "abort", lambda *_: None)


def shares_the_staging_of_all_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "attempts", lambda _: ["a1"])


def forgets_the_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Output, "mark", lambda *_: None)


def believes_its_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits.Committer, "_require_staged", lambda *_: None)


def says_that_it_took_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IcebergSink, "unpublish_after", lambda *_: [2, 3])


BREAKS: list[tuple[Break, str]] = [
    (commits_without_a_look, "test_a_second_commit_changes_nothing"),
    (commits_without_a_look, "test_the_same_epoch_of_another_timeline_is_refused"),
    (takes_any_epoch_for_its_own, "test_an_epoch_is_added_to_those_before"),
    (clears_nothing_away, "test_leftovers_are_what_was_staged_and_not_committed"),
    (leaves_what_was_staged, "test_a_death_after_staging_is_cleared_and_run_again"),
    (shares_the_staging_of_all_attempts, "test_abort_removes_only_its_own_token"),
    (forgets_the_mark, "test_a_new_handle_knows_all_about_what_was_committed"),
    (forgets_the_mark, "test_an_older_epoch_can_be_committed_again"),
    (
        believes_its_memory,
        "test_a_commit_after_the_abort_by_another_is_refused_and_shows_nothing",
    ),
    (says_that_it_took_back, "test_later_epochs_are_taken_back"),
]


@pytest.mark.parametrize(
    ("breaks", "rule"), BREAKS, ids=[f"{b.__name__}-{rule}" for b, rule in BREAKS]
)
def test_a_broken_sink_is_caught(
    breaks: Break, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.make_table(tmp_path)
    fixtures: dict[str, Any] = {
        "writer": Writer(
            lambda: HandWritten(iceberg.properties(tmp_path), iceberg.TABLE), iceberg.frame
        ),
        "visible": lambda: iceberg.numbers(tmp_path),
        "failing_frame": iceberg.failing_frame,
    }
    test = getattr(SinkSuite(), rule)
    given = {name: fixtures[name] for name in inspect.signature(test).parameters}
    breaks(monkeypatch)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a failed test, whatever it raises
        test(**given)
    assert not isinstance(caught.value, TypeError | AttributeError | NameError | KeyError)
    assert not isinstance(caught.value, pytest.skip.Exception)
