"""Everything that can meet, and many kills: for hours, in pieces, by ``make chaos``.

``SEAMARK_CHAOS_STATE`` names a file in which every finished case is noted: a second start leaves
those out. ``SEAMARK_CHAOS_SHARD=2/5`` takes every fifth case, beginning with the second.
``SEAMARK_CHAOS_KILLS`` is how many real kills there are.
"""

from __future__ import annotations

import os
import random
import shutil
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.conftest import SEED
from tests.pipeline.support.crashing import POINTS, crash, wipe
from tests.pipeline.support.workloads import KINDS, Uninterrupted, providers_for, run, shown
from tests.pipeline.test_kills import kill_often

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

EPOCHS: Final = (1, 2, 3, 4, 6)
Cell = tuple[str, str, str, str]
"""Kind, provider, point, and what becomes of the working copy."""

CELLS: Final[tuple[Cell, ...]] = tuple(
    (kind, provider, point, copy)
    for kind in KINDS
    for provider, point, copy in product(providers_for(kind), POINTS, ("kept", "wiped"))
)


def shard(cells: tuple[Cell, ...], text: str) -> list[Cell]:
    """The part of the cells that ``i/n`` names."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise ValueError(f"SEAMARK_CHAOS_SHARD is {text!r}, and not something like '2/5'")
    return list(cells[int(number) - 1 :: int(count)])


class Results:
    """Which cells are done, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()

    def __contains__(self, cell: Cell) -> bool:
        return f"ok {' '.join(cell)}" in self._done

    def note(self, verdict: str, cell: Cell, why: str = "") -> None:
        """Add a line at once, so that nothing is done twice after an interruption."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{verdict} {' '.join(cell)}{why and ': '}{why}\n")


def test_every_circumstance_with_every_other(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    seed = os.environ[SEED]
    results = Results(Path(os.environ.get("SEAMARK_CHAOS_STATE", tmp_path / "results.txt")))
    cells = shard(CELLS, os.environ.get("SEAMARK_CHAOS_SHARD", "1/1"))
    # the order is the seed's, so that an interrupted run has seen a bit of everything
    random.Random(seed).shuffle(cells)
    print(f"{SEED}={seed}: {len(cells)} cases")  # noqa: T201 - shown by -rP
    failed = []
    for cell in cells:
        if cell in results:
            continue
        why = broken(spark, uninterrupted, tmp_path / "case", cell, seed)
        results.note("failed" if why else "ok", cell, why)
        if why:
            failed.append(f"{' '.join(cell)}: {why}")
        shutil.rmtree(tmp_path / "case", ignore_errors=True)
    assert not failed, f"with {SEED}={seed}:\n" + "\n".join(failed)


def broken(
    spark: SparkSession, uninterrupted: Uninterrupted, root: Path, cell: Cell, seed: str
) -> str:
    """What is wrong after a crash under these circumstances; empty when nothing is."""
    kind, provider, point, copy = cell
    epoch = random.Random(f"{seed} {cell}").choice(EPOCHS)
    wanted, folder = uninterrupted(kind), uninterrupted.folder
    try:
        crash(spark, kind, provider, folder, root, f"{point}:{epoch}")
        if copy == "wiped":
            wipe(root)
        run(spark, kind, provider, folder, root)
        found = shown(root)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - the next case goes on
        return f"epoch {epoch}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
    wrong = [sink for sink in wanted if found.get(sink) != wanted[sink]]
    return f"epoch {epoch}: other rows in {', '.join(wrong)}" if wrong else ""


def test_many_kills_at_any_time_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    seed = os.environ[SEED]
    dice = random.Random(seed)
    left = int(os.environ.get("SEAMARK_CHAOS_KILLS", "50"))
    kinds = [(kind, provider) for kind in KINDS for provider in providers_for(kind)]
    dice.shuffle(kinds)
    print(f"{SEED}={seed}: {left} kills")  # noqa: T201 - shown by -rP
    for number, (kind, provider) in enumerate(cycle(kinds)):
        if left <= 0:
            break
        root = tmp_path / str(number)
        left -= kill_often(spark, root, kind, provider, min(5, left), dice)
        shutil.rmtree(root)


@pytest.mark.parametrize("text", ["0/3", "4/3", "x/3", "2", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SEAMARK_CHAOS_SHARD"):
        shard(CELLS, text)


def test_the_shards_together_are_everything_once() -> None:
    parts = [cell for number in (1, 2, 3) for cell in shard(CELLS, f"{number}/3")]
    assert sorted(parts) == sorted(CELLS)
