"""Runs that are cut off at a point, and how many of them cover all pairs of circumstances."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from seamark.pipeline.declaration.settings import Step
from seamark.testing.crashes import FailPoint, SimulatedCrash, When, crash_at
from tests.pipeline.support import workloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHEN: Final[tuple[When, ...]] = ("before", "after")
POINTS: Final = tuple(f"{step.value}:{when}" for step, when in product(Step, WHEN))
GAPS: Final = (
    "begin:before",
    "write:before",
    "prepare:before",
    "capture:before",
    "save:before",
    "save:after",
    "commit:after",
    "record:after",
    "retain:after",
)
"""One point for each state that a dead process can leave: after a step is before the next one."""


def crash(
    spark: SparkSession,
    kind: str,
    provider: str,
    folder: Path,
    root: Path,
    point: str,
    **options: Any,
) -> None:
    """Run until ``step:when:epoch`` is reached, and leave everything as a dead process would."""
    at = FailPoint.parse(point)
    hook = crash_at(at.step, at.when, at.epoch)
    with pytest.raises(SimulatedCrash, match=f"reached {point}"):
        workloads.run(spark, kind, provider, folder, root, on_step=hook, **options)


def wipe(root: Path) -> None:
    """Delete Spark's own files: the store alone has to be enough."""
    shutil.rmtree(root / "store" / "working", ignore_errors=True)


@dataclass(frozen=True)
class Case:
    """One pipeline that is cut off several times on its way."""

    kind: str
    provider: str
    points: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}-{self.provider}-{'+'.join(self.points)}"

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Every pair of circumstances that meet here."""
        pairs = {(self.kind, self.provider)}
        for point in self.points:
            pairs |= {(self.kind, point), (self.provider, point)}
        return pairs


def all_pairs(providers: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Every pair that can meet at all."""
    return {
        pair
        for kind, possible in providers.items()
        for provider, point in product(possible, GAPS)
        for pair in Case(kind, provider, (point,)).pairs
    }


def covering(providers: Mapping[str, Sequence[str]], crashes: int) -> list[Case]:
    """Few cases of at most so many crashes in which every possible pair meets; always the same."""
    missing = all_pairs(providers)
    cases: list[Case] = []
    while missing:
        case = max(
            (
                _filled(kind, provider, crashes, missing)
                for kind, possible in providers.items()
                for provider in possible
            ),
            key=lambda case: len(case.pairs & missing),
        )
        missing -= case.pairs
        cases.append(case)
    return cases


def _filled(kind: str, provider: str, crashes: int, missing: set[tuple[str, str]]) -> Case:
    """The points that help most with this kind and provider, in their order."""

    def gain(point: str) -> int:
        return len({(kind, point), (provider, point)} & missing)

    def order(point: str) -> tuple[int, int]:
        # points that are equally good are not taken side by side
        return -gain(point), (GAPS.index(point) * 4 + len(missing)) % len(GAPS)

    best = [point for point in sorted(GAPS, key=order)[:crashes] if gain(point)]
    points = best or [GAPS[len(missing) % len(GAPS)]]
    return Case(kind, provider, tuple(sorted(points, key=GAPS.index)))
