"""Compactions of a plan are made again from what came before, at a cost in proportion to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import limits
from seamark.capture.plans import install_plan, read_plan
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import RefusedError
from seamark.spark.batch_log import Plan
from tests.checkpoint_dir.support.directories import make_copy, offsets_text, source_entry


class CountingCopy(LocalCopy):
    """Counts what is read and written."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.listed: list[str] = []
        self.texts: list[str] = []
        self.written: dict[str, int] = {}

    def source_entry_names(self, folder: str) -> list[str]:
        self.listed.append(folder)
        return super().source_entry_names(folder)

    def read_text(self, relative: str) -> str | None:
        self.texts.append(relative)
        return super().read_text(relative)

    def write(self, relative: str, data: bytes) -> None:
        self.written[relative] = len(data)
        super().write(relative, data)


def whole(numbers: range) -> str:
    return "\n".join(["v1", *(source_entry(number).split("\n")[1] for number in numbers)])


def plan_of(numbers: range, compact: int, folder: str = "0") -> Plan:
    """Entries of which each one in ``compact`` is a compaction."""
    sources = {
        f"sources/{folder}/{n}" + ("" if (n + 1) % compact else ".compact"): source_entry(n)
        for n in numbers
    }
    return Plan(offsets_text(f'{{"logOffset":{numbers[-1]}}}'), sources)


def test_a_batch_of_entries_of_several_starts_has_each_of_its_compactions_made_again(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "a", 3)
    install_plan(copy, 3, plan_of(range(3, 10), 3))
    assert copy.read_text("sources/0/5.compact") == whole(range(6))
    assert copy.read_text("sources/0/8.compact") == whole(range(9))
    assert copy.read_text("sources/0/9") == source_entry(9)
    again = read_plan(copy, 3, [0])
    assert again is not None
    assert again.sources == plan_of(range(3, 10), 3).sources


def test_the_order_of_the_entries_in_a_plan_changes_nothing(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "a", 3)
    plan = plan_of(range(3, 10), 3)
    install_plan(copy, 3, Plan(plan.offsets, dict(reversed(plan.sources.items()))))
    assert copy.read_text("sources/0/8.compact") == whole(range(9))


def test_each_entry_is_read_once_however_many_compactions_repeat_it(tmp_path: Path) -> None:
    make_copy(tmp_path / "a", 5)
    copy = CountingCopy(tmp_path / "a")
    install_plan(copy, 5, plan_of(range(5, 105), 1))
    assert copy.listed == ["0"]
    entries = [path for path in copy.texts if path.startswith("sources/")]
    assert sorted(entries) == [f"sources/0/{number}" for number in range(5)]
    assert len(copy.written) == 101
    assert copy.read_text("sources/0/104.compact") == whole(range(105))


def test_compactions_that_would_repeat_far_more_than_there_is_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPEATED_FLOOR", 20_000)
    make_copy(tmp_path / "a", 5)
    copy = CountingCopy(tmp_path / "a")
    small, large = plan_of(range(5, 25), 1), plan_of(range(5, 105), 1)
    with pytest.raises(RefusedError, match="100 compactions") as refused:
        install_plan(copy, 5, large)
    assert "--without-plan" in (refused.value.hint or "")
    assert copy.written == {}
    install_plan(copy, 5, small)
    added = sum(len(entry) for entry in small.sources.values())
    assert sum(copy.written.values()) < 20_000 + limits.REPEATED_RATIO * added


def test_what_is_repeated_is_counted_for_all_sources_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPEATED_FLOOR", 0)
    make_copy(tmp_path / "a", 1)
    copy = CountingCopy(tmp_path / "a")
    few = plan_of(range(1, 9), 1)
    many = {p: e for f in range(2, 5) for p, e in plan_of(range(60), 1, str(f)).sources.items()}
    install_plan(copy, 1, few)
    copy.written.clear()
    with pytest.raises(RefusedError, match="188 compactions"):
        install_plan(copy, 1, Plan(few.offsets, {**few.sources, **many}))
    assert copy.written == {}
