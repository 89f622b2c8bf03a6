"""A plan that was made earlier stands for the files that it was made of, and for no others."""

from __future__ import annotations

import pytest

from seamark.capture.changed_inputs import require_unchanged_files
from seamark.capture.planned_files import PlannedFile, is_same_time
from seamark.errors import SeamarkError
from tests.capture.test_planned_files import plan


def test_every_file_of_a_plan_is_compared_however_many_there_are() -> None:
    files = [(f"file:/in/{n}", 1000 + n) for n in range(3000)]
    times = dict(files)
    require_unchanged_files(plan(*files), 7, dict, times.get)
    times["file:/in/2999"] = 1
    with pytest.raises(SeamarkError, match="epoch 7 was planned to read was modified") as error:
        require_unchanged_files(plan(*files), 7, dict, times.get)
    assert "file:/in/2999 (modified 1970-01-01 00:00:00.001 UTC, and " in str(error.value)


def test_of_many_modified_files_three_are_named() -> None:
    many = plan(*((f"file:/{n}", 1) for n in range(5)))
    with pytest.raises(SeamarkError, match=r"file:/2 .* and 2 more"):
        require_unchanged_files(many, 1, dict, lambda _: 2)


def test_files_elsewhere_are_asked_for_only_if_spark_has_not_told_their_times() -> None:
    asked: list[str] = []

    def modified(uri: str) -> int | None:
        asked.append(uri)
        return 5000

    files = plan(("s3a://b/told", 5000), ("s3a://b/not", 5000), ("file:/local", 5000))
    require_unchanged_files(files, 1, lambda: {"s3a://b/told": 5000, "file:/local": 1}, modified)
    assert asked == ["s3a://b/not", "file:/local"]
    with pytest.raises(SeamarkError, match="s3a://b/told"):
        require_unchanged_files(files, 1, lambda: {"s3a://b/told": 6000}, modified)


def test_a_file_that_is_gone_is_not_called_modified() -> None:
    require_unchanged_files(plan(("file:/a", 1), ("s3a://b/a", 1)), 1, dict, lambda _: None)


@pytest.mark.parametrize(
    ("uri", "planned", "now", "same"),
    [
        ("file:/a", 1500, 1500, True),
        ("file:/a", 1500, 1000, False),
        ("s3a://b/a", 1500, 1500, True),
        ("s3a://b/a", 1500, 1000, True),
        ("s3a://b/a", 1000, 1500, True),
        ("s3a://b/a", 1500, 1501, False),
        ("s3a://b/a", 1500, 2000, False),
    ],
)
def test_a_place_that_tells_whole_seconds_of_one_file_has_not_changed_it(
    uri: str, planned: int, now: int, same: bool
) -> None:
    assert is_same_time(PlannedFile(uri, planned), now) is same
