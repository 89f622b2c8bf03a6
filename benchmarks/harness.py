"""What the benchmarks share: interleaved repetitions, a place to write, and one table.

Everything is a ratio to a minimal baseline in the same run, or a count, so that the figures mean
the same on any machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# a script's own folder is where Python looks; the servers of the tests are one folder up
sys.path.append(str(Path(__file__).parents[1]))

Run = Callable[[], float | None]


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    quick: bool
    directory: Path


class Row(NamedTuple):
    """One line of the table."""

    what: str
    baseline: str
    measured: float
    limit: float | None = None
    unit: str = "×"
    strict: bool = False
    """Whether the limit itself is too much."""

    @property
    def verdict(self) -> str:
        """Whether the limit was kept, in a word; nothing where there is none."""
        if self.limit is None:
            return ""
        kept = self.measured < self.limit if self.strict else self.measured <= self.limit
        return "met" if kept else "MISSED"


def options(description: str | None) -> Options:
    """Read ``--quick`` and ``--directory``, which every benchmark takes."""
    summary = (description or "").strip().partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--quick", action="store_true", help="less data and fewer repetitions")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path.cwd(),
        help="where to write, hence the disk to measure (default: the current directory)",
    )
    given = parser.parse_args()
    return Options(quick=given.quick, directory=given.directory)


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """A folder on the disk to measure; it is gone afterwards."""
    # Spark's maintenance may write into it while it is being removed
    with tempfile.TemporaryDirectory(
        prefix=".seamark-bench-", dir=directory, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def seconds(run: Run) -> float:
    """How long a call takes, or what it says itself when it knows better."""
    started = time.perf_counter()
    said = run()
    return time.perf_counter() - started if said is None else said


def interleaved(cases: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Run every case once per round, forwards and backwards in turn, after one round of warm-up.

    What disturbs a machine for a while then disturbs all of them alike.
    """
    for run in cases.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds):
        for name in list(cases) if turn % 2 == 0 else reversed(list(cases)):
            times[name].append(seconds(cases[name]))
    return times


def ratio(ours: list[float], baseline: list[float]) -> float:
    """The median of the ratios, round by round."""
    return statistics.median(a / b for a, b in zip(ours, baseline, strict=True))


def in_milliseconds(times: list[float]) -> str:
    """The median, to be read by people."""
    median = 1000 * statistics.median(times)
    return f"{median:.0f} ms" if median >= 100 else f"{median:.3g} ms"


def show(
    title: str, rows: list[Row], notes: tuple[str, ...] = (), *, against: str = "baseline"
) -> None:
    """Print the table."""
    cells = [("what", against, "measured", "limit", "")]
    cells += [(row.what, row.baseline, _number(row), _limit(row), row.verdict) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    print(title)
    for row in cells:
        left = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        right = [row[2].rjust(widths[2]), row[3].rjust(widths[3])]
        print("  " + "  ".join([*left, *right, row[4]]).rstrip())
    for note in notes:
        print(f"  {note}")
    print()


def file_system(folder: Path) -> str:
    """The kind of file system that holds a folder, where the system tells."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    path = os.path.realpath(folder)
    over = [(at, kind) for at, kind in mounts if os.path.commonpath([at, path]) == at]
    return max(over, key=lambda mount: len(mount[0]), default=("", "unknown file system"))[1]


def _number(row: Row) -> str:
    if row.unit == "×":
        return f"{row.measured:.2f} ×"
    return f"{row.measured:.3g} {row.unit}".rstrip()


def _limit(row: Row) -> str:
    if row.limit is None:
        return "-"
    return f"{'<' if row.strict else '≤'} {row.limit:g} {row.unit}".rstrip()
