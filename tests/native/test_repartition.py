"""Other state partitions: what Spark's runner cannot do or does wrong is refused beforehand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.checkpoint_dir.operators import StatefulOperator
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import DamageError, InvalidInputError, RefusedError, SeamarkError
from seamark.native.repartition import (
    _failed,
    _verified,
    plan_repartition,
    repartition,
    require_runner,
)
from seamark.native.repartition_rules import OLDEST, impossible
from seamark.native.state_choice import PROVIDER
from seamark.spark.session import spark_version
from tests.checkpoint_dir.support.directories import make_copy
from tests.native.support.queries import after, outputs, run
from tests.pipeline.support.workloads import write_input
from tests.support.slow_cases import slow_except

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORES = {"total": 1, "limited": 1, "joined-hdfs": 20}
"""State stores of queries that have not one in each of five partitions."""


def entry(partitions: int, provider: str = ROCKSDB) -> bytes:
    conf = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": provider,
    }
    return f'v1\n{json.dumps({"conf": conf})}\n{{"logOffset":0}}'.encode()


def make(root: Path, *, partitions: int = 2, provider: str = ROCKSDB) -> LocalCopy:
    """A directory of one batch with changes that RocksDB could have written."""
    copy = make_copy(root, 1, partitions=partitions)
    copy.write("offsets/0", entry(partitions, provider))
    for partition in range(partitions):
        data = copy.read(f"state/0/{partition}/1.delta")
        copy.remove(f"state/0/{partition}/1.delta")
        copy.write(f"state/0/{partition}/1.changelog", data)
    return copy


def tree_of(root: Path) -> Tree:
    return Tree.of(LocalDirectory(root))


@pytest.mark.parametrize("version", [(3, 5), (4, 0), (4, 1)])
def test_a_spark_without_the_runner_is_told_which_one_has_it(version: tuple[int, int]) -> None:
    with pytest.raises(RefusedError, match=r"needs Spark 4\.2 or newer") as told:
        require_runner(version)
    assert f"{version[0]}.{version[1]}" in told.value.what


@pytest.mark.parametrize("version", [(4, 2), (4, 3), (5, 0)])
def test_a_spark_with_the_runner_is_enough(version: tuple[int, int]) -> None:
    require_runner(version)


def test_a_plan_says_which_batch_is_written_and_from_how_much(tmp_path: Path) -> None:
    make(tmp_path)
    plan = plan_repartition(tree_of(tmp_path), 5)
    assert (plan.batch, plan.new_batch, plan.partitions, plan.wanted) == (0, 1, 2, 5)
    assert plan.size > 0
    assert not plan.was_begun


@pytest.mark.parametrize("wanted", [0, -1])
def test_fewer_than_one_partition_is_no_number(tmp_path: Path, wanted: int) -> None:
    make(tmp_path)
    with pytest.raises(InvalidInputError):
        plan_repartition(tree_of(tmp_path), wanted)


def test_the_number_that_there_is_already_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(RefusedError, match="already"):
        plan_repartition(tree_of(tmp_path), 2)


def test_another_provider_is_refused_with_the_way_there(tmp_path: Path) -> None:
    make(tmp_path, provider="com.example.KeptElsewhere")
    with pytest.raises(RefusedError, match="KeptElsewhere") as told:
        plan_repartition(tree_of(tmp_path), 5)
    assert "start with a new checkpoint" in str(told.value)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({PROVIDER: ""}, "unknown provider"),
        ({"spark.sql.streaming.statefulOperator.useStrictDistribution": "false"}, "before 3.3"),
        ({"spark.sql.streaming.stateStore.rowChecksum.enabled": "true"}, "checksums of rows"),
    ],
)
def test_state_whose_rows_cannot_be_placed_or_written_is_refused(
    other: dict[str, str], why: str
) -> None:
    found = impossible({PROVIDER: HDFS, **other})
    assert found is not None
    assert why in found.why


def test_a_join_that_the_runner_of_spark_would_damage_is_refused() -> None:
    join = StatefulOperator(1, "symmetricHashJoin", ["default"], 4)
    for form, works in (("2", True), ("3", True), ("4", False)):
        conf = {PROVIDER: ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": form}
        assert (impossible(conf, [join]) is None) is works
    assert impossible(conf, [StatefulOperator(0, "dedupe", ["default"], 4)]) is None


def test_only_operators_whose_keys_are_known_are_rewritten() -> None:
    known = [StatefulOperator(0, "dedupe", ["default"], 4)]
    assert impossible({PROVIDER: HDFS}, known) is None
    unknown = StatefulOperator(1, "someday", ["default"], 4)
    found = impossible({PROVIDER: HDFS}, [*known, unknown])
    assert found is not None
    assert "operator 1 (someday)" in found.why
    assert impossible({PROVIDER: ROCKSDB}, [unknown]) is None  # Spark's runner says what it knows


def test_a_batch_that_is_not_finished_is_named(tmp_path: Path) -> None:
    make(tmp_path).write("offsets/1", entry(2))
    with pytest.raises(RefusedError, match="batch 1 was planned") as told:
        plan_repartition(tree_of(tmp_path), 5)
    assert "availableNow" in str(told.value)


def test_an_interrupted_change_can_only_be_finished(tmp_path: Path) -> None:
    make(tmp_path).write("offsets/1", entry(5))
    with pytest.raises(RefusedError, match="interrupted") as told:
        plan_repartition(tree_of(tmp_path), 7)
    assert "5 --yes, and --file-sink OUT or --no-file-sink" in str(told.value)
    assert plan_repartition(tree_of(tmp_path), 5).was_begun


def test_a_query_without_state_or_batches_has_nothing_to_change(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path)
    copy.write("metadata", b'{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    with pytest.raises(RefusedError, match="no batch"):
        plan_repartition(tree_of(tmp_path), 5)
    copy.write("offsets/0", entry(2))
    copy.write("commits/0", b"v1\n{}")
    with pytest.raises(RefusedError, match="keeps no state"):
        plan_repartition(tree_of(tmp_path), 5)


def test_damaged_state_is_not_spread_over_other_partitions(tmp_path: Path) -> None:
    make(tmp_path).remove("state/0/1/1.changelog")
    (tmp_path / "state" / "0" / "1").mkdir(exist_ok=True)
    with pytest.raises(DamageError, match="partition 1"):
        plan_repartition(tree_of(tmp_path), 5)


@pytest.mark.parametrize("partitions", [1, 2])
def test_an_operator_without_a_key_would_lose_its_state_so_it_is_refused(
    tmp_path: Path, partitions: int
) -> None:
    copy = make(tmp_path, partitions=partitions)
    copy.write("state/0/0/_metadata/schema", b'v2\n{"type":"struct","fields":[]}\n{"type":"x"}')
    with pytest.raises(RefusedError, match="where the query does not find it"):
        plan_repartition(tree_of(tmp_path), 5)


def test_a_batch_with_a_hole_is_not_called_done(tmp_path: Path) -> None:
    copy = make(tmp_path)
    plan = plan_repartition(tree_of(tmp_path), 3)
    with pytest.raises(DamageError, match="not whole"):
        _verified(tree_of(tmp_path), plan, "seamark spark restore S 1 P")
    copy.write("offsets/1", entry(3))
    copy.write("commits/1", b"v1\n{}")
    for partition in range(3):
        for version in (1, 2):
            copy.write(f"state/0/{partition}/{version}.changelog", b"x")
    assert _verified(tree_of(tmp_path), plan, "") == 3
    copy.remove("state/0/2/2.changelog")
    with pytest.raises(DamageError) as told:
        _verified(tree_of(tmp_path), plan, "seamark spark restore S 1 P")
    assert "state/0/2" in str(told.value)
    assert "seamark spark restore S 1 P" in str(told.value)


def test_a_runner_that_fails_half_way_is_told_with_both_ways_out(tmp_path: Path) -> None:
    copy = make(tmp_path)
    plan = plan_repartition(tree_of(tmp_path), 3)
    error = Exception("[STATE_REPARTITION_INVALID_CHECKPOINT.X] no. SQLSTATE: 55019\n\tat x")
    before = _failed(error, tree_of(tmp_path), plan, "GO BACK")
    assert isinstance(before, RefusedError)
    assert "as they were" in before.what
    copy.write("offsets/1", entry(3))
    half = _failed(error, tree_of(tmp_path), plan, "GO BACK")
    assert type(half) is SeamarkError
    for part in ("same command again", "GO BACK", "STATE_REPARTITION_INVALID_CHECKPOINT.X"):
        assert part in str(half)
    assert "\tat" not in str(half)


def deliver(files: Path, folder: Path, count: int) -> None:
    """Let the sources have so many files."""
    for name in ("orders", "payments"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in sorted((files / name).iterdir())[:count]:
            shutil.copy2(path, folder / name / path.name)


@pytest.mark.warm
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kind",
    slow_except(
        [
            "counted-rocksdb",
            "counted-format2",
            "windowed-changelog",
            "windowed-format2-changelog",
            "transformed",
            "counted-hdfs",
            "windowed-hdfs",
            "deduplicated",
            "joined-hdfs",
            "sessions",
            "groups in format 1",
            "total",
            "limited",
        ]
    ),
)
def test_a_repartitioned_query_goes_on_with_the_same_results(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    if spark_version(spark) < OLDEST:
        pytest.skip("this Spark has no offline runner")
    folder, files = tmp_path / "input", write_input(tmp_path / "all", 4)
    deliver(files, folder, 3)
    checkpoint, whole = tmp_path / "checkpoint", tmp_path / "whole"
    first = run(spark, kind, folder, checkpoint, tmp_path / "out")
    run(spark, kind, folder, whole, tmp_path / "uninterrupted")
    plan = plan_repartition(tree_of(checkpoint), 5)
    assert repartition(spark, LocalDirectory(checkpoint), plan, "") == STORES.get(kind, 5)
    deliver(files, folder, 5)
    last = max(first)
    again = run(spark, kind, folder, checkpoint, tmp_path / "out")
    expected = run(spark, kind, folder, whole, tmp_path / "uninterrupted")
    # the runner has taken one number for a batch of its own
    shifted = {batch - 1: found for batch, found in after(again, last).items()}
    assert shifted == after(expected, last)
    assert any(shifted.values())
    assert after(outputs(tmp_path / "out"), last + 1)
    newest = {path.name for path in (checkpoint / "state" / "0").iterdir() if path.name.isdigit()}
    assert newest == ({"0"} if kind in ("total", "limited") else set("01234"))
