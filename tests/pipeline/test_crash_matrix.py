"""A pipeline that is cut off at any point of an epoch shows every row once in the end.

A crash is an exception that no clean-up sees, inside one warm JVM: staged rows, locks and Spark's
files stay as they are. Each case is cut off up to three times on its way, and before every second
restart the working copy is deleted. ``test_kills`` has the real kills, ``test_chaos`` everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pipeline.support.crashing import Case, all_pairs, covering, crash, wipe
from tests.pipeline.support.workloads import KINDS, Uninterrupted, providers_for, run, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CRASHES: Final = 3
Where = Mapping[str, tuple[str, ...]]

_MAIN_PROVIDERS: Final = ("hdfs", "rocksdb", "rocksdb-changelog", "format2-changelog")
MAIN: Final[Where] = {
    kind: tuple(name for name in providers_for(kind) if name in _MAIN_PROVIDERS)
    for kind in KINDS
    if kind not in ("stateless-one-sink", "windowed-one-sink", "inner-join", "sessions")
}
# a second look at what is left, not at all of it: test_chaos has every kind on every provider
FURTHER: Final[Where] = {
    kind: tuple(name for name in providers_for(kind) if name in ("hdfs", "format2"))
    for kind in KINDS
    if kind not in MAIN
}
CASES: Final = covering(MAIN, CRASHES)
FURTHER_CASES: Final = covering(FURTHER, CRASHES)


@pytest.mark.parametrize(("where", "cases"), [(MAIN, CASES), (FURTHER, FURTHER_CASES)])
def test_every_pair_of_kind_provider_and_point_meets_in_some_case(
    where: Where, cases: list[Case]
) -> None:
    met = {pair for case in cases for pair in case.pairs}
    assert met == all_pairs(where)


QUICK = 3
"""The case that ``make test`` runs: windows in RocksDB with changelogs. The others take long."""


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("number", "case"),
    [
        *(
            pytest.param(
                n, case, marks=[pytest.mark.warm, *([pytest.mark.slow] if n != QUICK else [])]
            )
            for n, case in enumerate(CASES)
        ),
        *(pytest.param(n, case, marks=pytest.mark.spark) for n, case in enumerate(FURTHER_CASES)),
    ],
    ids=map(str, [*CASES, *FURTHER_CASES]),
)
def test_after_crashes_every_sink_shows_every_row_once(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    number: int,
    case: Case,
) -> None:
    wanted = uninterrupted(case.kind)
    for epoch, point in enumerate(case.points, start=5 - len(case.points) - number % 2):
        crash(spark, case.kind, case.provider, uninterrupted.folder, tmp_path, f"{point}:{epoch}")
        if (number + epoch) % 2:
            wipe(tmp_path)
    run(spark, case.kind, case.provider, uninterrupted.folder, tmp_path)
    assert shown(tmp_path) == wanted
