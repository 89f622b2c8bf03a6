"""A reader of a sink sees what Spark has computed, whatever the values are, or it is refused.

An epoch that holds a value which the target cannot keep is refused before it is decided. None is
decided and cannot be shown, no row is lost or doubled, and no value is another one afterwards.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.conftest import SEED
from tests.pipeline.support.random_values import Case
from tests.pipeline.support.value_cases import narrowed, outcome, random_case
from tests.pipeline.support.value_target import Services

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS: Final = (
    *("files-parquet", "files-json", "files-csv", "files-orc", "delta", "iceberg", "postgres"),
    *("view-rocksdb", "view-redis", "function"),
)
_TRIES: Final = 4
"""Columns that are refused are left out, so that the others are written."""


@pytest.fixture
def services(request: pytest.FixtureRequest, sink: str) -> Services:
    if sink == "postgres":
        return Services(postgres=request.getfixturevalue("postgres").new_database)
    if sink == "view-redis":
        return Services(redis=request.getfixturevalue("redis").url)
    return Services()


def problem(
    spark: SparkSession, root: Path, case: Case, services: Services, found: Counter[str]
) -> str:
    """Why a case is a bug, in words; empty when it is none."""
    left: Case | None = case
    for number in range(_TRIES):
        if left is None:
            break
        folder = root / str(number)
        got = outcome(spark, folder, left, services)
        shutil.rmtree(folder)
        if got.wrong:
            return f"{left}\n  {got.wrong}\n  {got.refusal}"
        found["refused" if got.refusal else "shown"] += 1
        left = narrowed(left, got.refusal) if got.refusal else None
    return ""


@pytest.mark.sampled(len(SINKS))
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_shows_the_values_of_a_sample(
    spark: SparkSession, tmp_path: Path, sink: str, services: Services
) -> None:
    found: Counter[str] = Counter()
    for number in range(2):
        case = random_case(random.Random(f"sample-{sink}-{number}"), sink)
        root = tmp_path / str(number)
        assert problem(spark, root, case, services, found) == ""
    assert found["shown"]


@pytest.mark.chaos
@pytest.mark.warm
@pytest.mark.timeout(0)
@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_shows_any_values_or_refuses_them(
    spark: SparkSession, tmp_path: Path, sink: str, services: Services
) -> None:
    seed = os.environ[SEED]
    number = int(os.environ.get("SEAMARK_CHAOS_VALUES", "60"))
    failed, found = [], Counter[str]()
    for turn in range(number):
        case = random_case(random.Random(f"{seed}-{turn}-{sink}"), sink)
        if why := problem(spark, tmp_path / str(turn), case, services, found):
            failed.append(why)
            print(f"failed {why}", flush=True)  # noqa: T201 - shown by -rP
    print(f"{SEED}={seed}: {number} cases, {dict(found)}")  # noqa: T201 - shown by -rP
    assert not failed, f"with {SEED}={seed}:\n" + "\n".join(failed)
