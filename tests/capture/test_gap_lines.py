"""The lines after recorded gaps are put into Spark's offset log, all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.capture.gap_lines import apply_gaps, with_lines
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError
from tests.support.counted_lines import lines_run


def one_by_one(lines: list[str], leaves: list[str], gaps: list[dict[str, Any]]) -> list[str]:
    for gap in gaps:
        moved = gap.get("lines", gap["line"])
        lines = [
            line
            if name != gap["source"]
            else moved
            if isinstance(moved, str)
            else moved.get(line, line)
            for name, line in zip(leaves, lines, strict=True)
        ]
    return lines


A_LINE = st.sampled_from(["1", "2", "3", "4"])
A_SOURCE = st.sampled_from(["a", "b", "c"])
A_GAP = st.fixed_dictionaries(
    {"epoch": st.just(1), "source": A_SOURCE, "line": A_LINE},
    optional={"lines": st.dictionaries(A_LINE, A_LINE)},
)


@given(st.lists(st.tuples(A_SOURCE, A_LINE), max_size=8), st.lists(A_GAP, max_size=6))
def test_several_gaps_after_one_entry_make_what_they_make_one_by_one(
    there: list[tuple[str, str]], gaps: list[dict[str, Any]]
) -> None:
    leaves, lines = [name for name, _ in there], [line for _, line in there]
    text = "\n".join(["v1", "{}", *lines])
    all_moved = [(gap["source"], gap.get("lines", gap["line"])) for gap in gaps]
    moved = with_lines(text, leaves, all_moved)
    assert moved == "\n".join(["v1", "{}", *one_by_one(lines, leaves, gaps)])


class CountingCopy(LocalCopy):
    """Counts the entries that are read and written."""

    asked = 0

    def read_text(self, path: str) -> str | None:
        self.asked += 1
        return super().read_text(path)

    def write(self, path: str, data: bytes) -> None:
        self.asked += 1
        super().write(path, data)


def test_an_entry_is_read_and_written_once_however_many_gaps_there_are_after_it(
    tmp_path: Path,
) -> None:
    def taken(count: int) -> int:
        copy = CountingCopy(str(tmp_path))
        copy.write("offsets/0", "\n".join(["v1", "{}", *map(str, range(count))]).encode())
        gaps = [{"epoch": 1, "source": "a", "line": str(at)} for at in range(count)]
        copy.asked = 0
        lines = lines_run(lambda: apply_gaps(copy, gaps, ["a"] * count, 0))
        assert copy.asked == 2
        assert copy.read_text("offsets/0") == "\n".join(["v1", "{}", *[str(count - 1)] * count])
        return lines

    assert taken(400) < 3 * taken(200)


def test_a_gap_that_names_no_line_is_damage(tmp_path: Path) -> None:
    copy = LocalCopy(str(tmp_path))
    copy.write("offsets/0", b"v1\n{}\n1")
    gap = {"epoch": 1, "source": "a", "line": "2", "lines": {"1": 2}}
    with pytest.raises(DamageError, match="without a line"):
        apply_gaps(copy, [gap], ["a"], 0)
