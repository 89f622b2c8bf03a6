"""Another process is at work exactly where it is wanted, and nobody waits for it for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seamark.testing.conformance.interleaving import Steps, spread


class Work:
    """Three steps: a file is written in the first two, and renamed in the last."""

    def __init__(self, root: Path) -> None:
        self.file = root / "new"

    def do(self) -> str:
        with open(self.file, "w") as file:
            file.write("rows")
        self.file.rename(self.file.with_name("done"))
        return "done"


STEPS = Steps(Work, r"^(open|TextIOWrapper.write|rename)$")


def test_the_other_one_comes_before_each_step(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert STEPS.count(work.do) == 3
    (tmp_path / "done").unlink()
    seen = []
    for at in range(4):
        met = STEPS.overlap(work.do, at, lambda: {*map(str, tmp_path.iterdir())}, 5.0)
        assert met.first == "done"
        seen.append((met.where.split(",")[0], met.other))
        (tmp_path / "done").unlink()
    new, done = {str(tmp_path / "new")}, {str(tmp_path / "done")}
    assert seen == [
        ("before open", set()),
        ("before TextIOWrapper.write", new),
        ("before rename", new),
        ("after the last step", done),
    ]


def test_what_only_computes_is_no_step(tmp_path: Path) -> None:
    assert Steps(Work).count(lambda: sorted(str(number) for number in range(9))) == 0


def test_errors_of_both_are_told(tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    met = STEPS.overlap(Work(tmp_path).do, 1, (tmp_path / "none").read_text, 5.0)
    assert isinstance(met.first_error, IsADirectoryError)
    assert isinstance(met.other_error, FileNotFoundError)


def test_one_that_has_to_wait_for_the_work_is_waited_for_at_the_end(tmp_path: Path) -> None:
    work, held = Work(tmp_path), threading.Lock()

    def do() -> str:
        with held:
            return work.do()

    def wait() -> bool:
        with held:
            return (tmp_path / "done").exists()

    assert STEPS.overlap(do, 2, wait, 0.05).other is True


@pytest.mark.parametrize(
    ("count", "most", "points"),
    [(0, 5, [0]), (3, 5, [0, 1, 2]), (9, 3, [0, 4, 8]), (100, 2, [0, 99]), (7, 1, [0])],
)
def test_points_are_spread_evenly(count: int, most: int, points: list[int]) -> None:
    assert spread(count, most) == points
