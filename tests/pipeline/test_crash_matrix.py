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

from tests.pipeline.crashing import Case, all_pairs, covering, crash, wipe
from tests.pipeline.workloads import KINDS, Uninterrupted, providers_for, run, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CRASHES: Final = 3
WHERE: Final[Mapping[str, tuple[str, ...]]] = {kind: providers_for(kind) for kind in KINDS}
CASES: Final = covering(WHERE, CRASHES)


def test_every_pair_of_kind_provider_and_point_meets_in_some_case() -> None:
    met = {pair for case in CASES for pair in case.pairs}
    assert met == all_pairs(WHERE)


@pytest.mark.warm
@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES, start=1)), ids=map(str, CASES))
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
