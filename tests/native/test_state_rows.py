"""Which state is meant is told from the files; what cannot be shown is told before Spark starts."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import Row
from pyspark.sql import types as t

from seamark._common.progress_bars import no_bar
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.cli.spark import state_output
from seamark.cli.spark.state_output import RowOutput, write_rows
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.native.state_choice import StateRequest, StateSelection, choose, keepers
from seamark.native.state_rows import _error_for, brought_here, plain, state_frame
from seamark.reports import state_rows
from seamark.reports.state_rows import read_state, settled, within_reach
from seamark.spark.failures import SparkFailure, said_by
from seamark.testing.conformance.interleaving import Steps
from seamark.ui import row_source
from seamark.ui.row_source import RowsAsked, RowSource
from tests.checkpoint_dir.support.directories import make_copy


def tree_of(root: Path) -> Tree:
    return Tree.of(LocalDirectory(root))


def describe(root: Path, number: int, name: str, stores: list[str], **properties: Any) -> None:
    """Note a stateful operator as Spark does, with properties in version 2 of the file."""
    info: dict[str, Any] = {
        "operatorInfo": {"operatorId": number, "operatorName": name},
        "stateStoreInfo": [{"storeName": store, "numPartitions": 2} for store in stores],
    }
    path = root / "state" / str(number) / "_metadata" / "metadata"
    if properties:
        info["operatorPropertiesJson"] = json.dumps(properties)
        path = path.parent / "v2" / "0"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"v2\n{json.dumps(info)}")


def variables(*names: str) -> list[dict[str, str]]:
    return [{"stateName": name, "stateVariableType": "ValueState"} for name in names]


def test_what_there_is_only_one_of_need_not_be_named(tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    reading = choose(tree_of(tmp_path), StateRequest())
    assert reading.batch == 2
    assert reading.options == {"operatorId": "0", "storeName": "default", "batchId": "2"}
    assert reading.format_version == 1


def test_changes_are_asked_for_from_the_first_batch_to_the_last(tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    options = choose(tree_of(tmp_path), StateRequest(changes=(0, 2))).options
    assert options["readChangeFeed"] == "true"
    assert (options["changeStartBatchId"], options["changeEndBatchId"]) == ("0", "2")
    assert "batchId" not in options


@pytest.mark.parametrize(
    "asked", [StateRequest(batch=3), StateRequest(changes=(1, 3)), StateRequest(changes=(7, 9))]
)
def test_a_batch_that_is_not_there_is_not_found(tmp_path: Path, asked: StateRequest) -> None:
    make_copy(tmp_path, 3)
    with pytest.raises(CheckpointNotFoundError) as told:
        choose(tree_of(tmp_path), asked)
    assert "0 to 2" in str(told.value)


def test_an_operator_or_a_store_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    make_copy(tmp_path, 1)
    with pytest.raises(CheckpointNotFoundError, match="operator 4"):
        choose(tree_of(tmp_path), StateRequest(operator=4))
    with pytest.raises(CheckpointNotFoundError, match="store 'other'"):
        choose(tree_of(tmp_path), StateRequest(store="other"))
    with pytest.raises(CheckpointNotFoundError, match="variable 'n'"):
        choose(tree_of(tmp_path), StateRequest(variable="n"))


def test_of_several_operators_one_has_to_be_named(tmp_path: Path) -> None:
    make_copy(tmp_path, 1)
    describe(tmp_path, 1, "dedupe", ["default"])
    with pytest.raises(InvalidInputError, match="which one") as told:
        choose(tree_of(tmp_path), StateRequest())
    assert "0 (stateStoreSave), 1 (dedupe)" in str(told.value)
    assert choose(tree_of(tmp_path), StateRequest(operator=1)).keeper.operator.name == "dedupe"


def test_a_join_is_asked_for_its_side(tmp_path: Path) -> None:
    make_copy(tmp_path, 2)
    describe(tmp_path, 0, "symmetricHashJoin", ["left-keyToNumValues", "left-keyWithIndexToValue"])
    tree = tree_of(tmp_path)
    with pytest.raises(InvalidInputError, match="which side"):
        choose(tree, StateRequest())
    assert choose(tree, StateRequest(side="left")).options["joinSide"] == "left"
    # Spark refuses a side together with changes
    changes = choose(tree, StateRequest(side="left", changes=(0, 1))).options
    assert changes["storeName"] == "left-keyWithIndexToValue"
    assert "joinSide" not in changes


@pytest.mark.parametrize(
    "name", ["../../../../other/state/0/0", "/other/state/0/0", "default", "left", "left-keyTo"]
)
def test_of_a_join_only_its_own_stores_are_read(tmp_path: Path, name: str) -> None:
    """Spark makes a path of the name, and on the page it is part of the address."""
    make_copy(tmp_path, 1)
    describe(tmp_path, 0, "symmetricHashJoin", ["left-keyToNumValues", "left-keyWithIndexToValue"])
    own = StateRequest(store="left-keyToNumValues")
    assert choose(tree_of(tmp_path), own).options["storeName"] == "left-keyToNumValues"
    with pytest.raises(CheckpointNotFoundError, match="no store"):
        choose(tree_of(tmp_path), StateRequest(store=name))


def test_what_a_join_keeps_in_one_store_has_names_too(tmp_path: Path) -> None:
    make_copy(tmp_path, 1)
    describe(tmp_path, 0, "symmetricHashJoin", ["default"])
    for name in ("right-keyWithIndexToValue", "left-keyWithTsToValues", "right-tsWithKey"):
        assert choose(tree_of(tmp_path), StateRequest(store=name)).options["storeName"] == name


def test_the_state_variables_are_listed_when_none_is_named(tmp_path: Path) -> None:
    make_copy(tmp_path, 1)
    describe(tmp_path, 0, "transformWithState", ["default"], stateVariables=variables("n", "seen"))
    tree = tree_of(tmp_path)
    with pytest.raises(InvalidInputError) as told:
        choose(tree, StateRequest())
    assert "n (ValueState), seen (ValueState)" in str(told.value)
    assert choose(tree, StateRequest(variable="seen")).options["stateVarName"] == "seen"
    describe(tmp_path, 0, "transformWithState", ["default"], stateVariables=variables("n"))
    assert choose(tree_of(tmp_path), StateRequest()).options["stateVarName"] == "n"


def test_an_unreadable_note_of_spark_is_damage(tmp_path: Path) -> None:
    make_copy(tmp_path, 1)
    describe(tmp_path, 0, "transformWithState", ["default"], stateVariables=[{"x": 1}])
    with pytest.raises(DamageError, match="operator 0"):
        keepers(tree_of(tmp_path))


def test_changes_of_state_that_keeps_none_are_refused_with_the_setting(tmp_path: Path) -> None:
    copy = make_copy(tmp_path, 1)
    for partition in (0, 1):
        copy.remove(f"state/0/{partition}/1.delta")
        copy.write(f"state/0/{partition}/1.zip", b"whole")
    with pytest.raises(RefusedError) as told:
        choose(tree_of(tmp_path), StateRequest(changes=(0, 0)))
    assert "changelogCheckpointing.enabled=true" in str(told.value)


def test_a_question_that_contradicts_itself_is_not_answered(tmp_path: Path) -> None:
    make_copy(tmp_path, 2)
    for asked in (
        StateRequest(batch=1, changes=(0, 1)),
        StateRequest(changes=(1, 0)),
        StateRequest(side="left"),
        StateRequest(side="left", store="default"),
    ):
        with pytest.raises(InvalidInputError):
            choose(tree_of(tmp_path), asked)


def test_a_copy_that_spark_reads_leads_to_itself(tmp_path: Path) -> None:
    make_copy(tmp_path / "a", 1)
    schema = "s3a://bucket/ck/state/0/_stateSchema/default/0_x"
    described = tmp_path / "a" / "state" / "0" / "_metadata"
    note = described / "v2" / "0"
    note.parent.mkdir()
    told = (described / "metadata").read_text().replace("{", f'{{"paths":["{schema}"],', 1)
    note.write_text(told)
    tree = tree_of(tmp_path / "a")
    brought_here(tree, str(tmp_path / "b"), choose(tree, StateRequest()))
    made = (tmp_path / "b" / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    assert f"{tmp_path}/b/state/0/_stateSchema/default/0_x" in made
    assert "s3a" not in made


# a directory on an object store, whose query is running


class Bucket(ObjectDirectory):
    """Spark's directory as objects, and a query that goes on while they are read."""

    def __init__(self, root: Path, batches: int) -> None:
        super().__init__(f"memory://{root.name}-{uuid.uuid4().hex}", {})
        self.read_paths: list[str] = []
        self.beside: list[Callable[[], None]] = []
        """What the query does, one thing each time that its first file of state is read."""
        self.put(root, batches)

    def put(self, root: Path, batches: int) -> None:
        """All files of so many batches; what is there already stays."""
        make_copy(root, batches)
        there = self.listing()
        for path in root.rglob("*"):
            if path.is_file() and (name := str(path.relative_to(root))) not in there:
                self.write(name, path.read_bytes())

    def read(self, path: str) -> bytes:
        if path == "state/0/0/1.delta" and self.beside:
            self.beside.pop(0)()
        data = super().read(path)
        self.read_paths.append(path)
        return data

    def forget(self, *batches: int) -> None:
        """As Spark does it: the logs of some batches, and the state that only they need."""
        logs = [f"{log}/{batch}" for log in ("offsets", "commits") for batch in batches]
        self.remove([*logs, *(f"state/0/{p}/{b + 1}.delta" for p in (0, 1) for b in batches)])

    def snapshot(self, version: int) -> None:
        """As Spark does it in its maintenance: no older file is needed any more."""
        for partition in (0, 1):
            self.write(f"state/0/{partition}/{version}.snapshot", b"all rows")


def test_only_what_the_batch_needs_is_copied_from_an_object_store(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, 5)
    bucket.snapshot(3)
    tree = Tree.of(bucket)
    bucket.forget(0, 1)
    with within_reach(bucket, tree, StateRequest()) as (files, reading):
        assert reading.batch == 4
        kept = sorted(files.files_below("state/0/1"))
    assert kept == [f"state/0/1/{name}" for name in ("3.snapshot", "4.delta", "5.delta")]
    assert not [path for path in bucket.read_paths if path.endswith(("/1.delta", "/2.delta"))]


def test_a_newer_batch_is_read_when_the_newest_one_vanishes_from_an_object_store(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path, 3)

    def go_on() -> None:
        bucket.put(tmp_path, 6)
        bucket.snapshot(4)
        bucket.forget(0, 1, 2)

    bucket.beside.append(go_on)
    with within_reach(bucket, Tree.of(bucket), StateRequest()) as (files, reading):
        assert reading.batch == 5
        assert "state/0/0/6.delta" in files.entries
        assert "state/0/0/1.delta" not in files.entries


def test_a_log_entry_that_vanishes_from_an_object_store_after_the_listing_is_no_damage(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path, 3)
    tree = Tree.of(bucket)
    bucket.put(tmp_path, 6)
    bucket.snapshot(4)
    bucket.forget(0, 1, 2)
    with within_reach(bucket, tree, StateRequest()) as (_, reading):
        assert reading.batch == 5


def test_a_batch_that_vanishes_from_an_object_store_is_not_there(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, 3)

    def go_on() -> None:
        bucket.put(tmp_path, 6)
        bucket.snapshot(4)
        bucket.forget(0, 1, 2)

    bucket.beside.append(go_on)
    asked = StateRequest(batch=1)
    with (
        pytest.raises(CheckpointNotFoundError, match="batch 1 is not among the committed ones"),
        within_reach(bucket, Tree.of(bucket), asked),
    ):
        pass


def test_changes_that_vanish_from_an_object_store_at_every_look_are_not_there(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path, 9)
    # the logs stay, so that the choice stays the same
    bucket.beside = [partial(bucket.remove, [f"state/0/1/{n}.delta"]) for n in range(9, 0, -1)]
    with (
        pytest.raises(CheckpointNotFoundError, match="5 times in a row") as caught,
        within_reach(bucket, Tree.of(bucket), StateRequest(changes=(0, 8))),
    ):
        pass
    assert "state/0/1/" in str(caught.value)
    assert "minBatchesToRetain" in str(caught.value)


def test_state_that_is_lost_on_an_object_store_is_left_to_spark_to_tell(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, 3)
    bucket.remove(["state/0/1/2.delta"])
    with within_reach(bucket, Tree.of(bucket), StateRequest()) as (files, reading):
        lost = _error_for(said_by(Exception(_MISSING)), files, reading)
    assert isinstance(lost, DamageError)


# what Spark says

_MISSING = (
    "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: "
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading "
    "state. Error reading streaming state file of /x/2.changelog does not exist. If the stream job "
    "is restarted with a new or updated state operation, please create a new checkpoint location "
    "or clear the existing checkpoint location. SQLSTATE: 58030\n\tat org.apache.spark.A.b(C.scala)"
)
_CORRUPT = (
    "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: "
    "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 1\n"
    "\tat org.apache.spark.A.b(C.scala)\nCaused by: java.io.IOException: Stream is corrupted\n\tat"
)


def test_an_error_of_spark_is_one_line_with_its_name_and_without_its_java() -> None:
    said = said_by(Exception(_MISSING))
    assert said.condition == "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE"
    assert said.line.endswith("/x/2.changelog does not exist.")  # and no advice to remove it all
    assert str(said_by(Exception(_CORRUPT))).endswith("IOException: Stream is corrupted")
    bare = said_by(Exception("An error occurred while calling o1.x.\n: java.lang.Oops: no\n\tat x"))
    assert str(bare) == "Oops: no"


@pytest.mark.parametrize(
    ("condition", "line", "batch", "kind"),
    [
        ("STDS_COMMITTED_BATCH_UNAVAILABLE", "no", 2, CheckpointNotFoundError),
        ("STDS_FAILED_TO_READ_STATE_SCHEMA", "no", 2, DamageError),
        ("STDS_CONFLICT_OPTIONS", "no", 2, RefusedError),
        ("CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", "corrupted", 2, DamageError),
        ("CANNOT_LOAD_STATE_STORE.X", "1.delta does not exist", 2, DamageError),
        ("CANNOT_LOAD_STATE_STORE.X", "1.delta does not exist", 0, CheckpointNotFoundError),
        ("CANNOT_LOAD_STATE_STORE.HDFS_STORE_PROVIDER_OUT_OF_MEMORY", "no", 2, SeamarkError),
        ("SOMETHING_NEW", "no", 2, SeamarkError),
    ],
)
def test_what_spark_says_becomes_an_error_with_the_exit_code_that_fits(
    tmp_path: Path, condition: str, line: str, batch: int, kind: type[SeamarkError]
) -> None:
    make_copy(tmp_path, 3)
    tree = tree_of(tmp_path)
    error = _error_for(SparkFailure(condition, line), tree, choose(tree, StateRequest(batch=batch)))
    assert type(error) is kind
    assert condition in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "OutOfMemoryError: Java heap space",
        "Job 0 cancelled because SparkContext was shut down",
        'Cannot invoke "org.apache.spark.scheduler.DAGScheduler.cleanupQueryJobs(long)" because '
        'the return value of "org.apache.spark.SparkContext.dagScheduler()" is null',
    ],
)
def test_a_state_that_spark_has_no_memory_for_is_not_called_damaged(
    tmp_path: Path, line: str
) -> None:
    make_copy(tmp_path, 3)
    tree = tree_of(tmp_path)
    error = _error_for(SparkFailure("", line), tree, choose(tree, StateRequest(batch=2)))
    assert "memory was not enough" in error.what
    assert "--driver-memory" in str(error.hint)


def test_a_state_file_that_is_mostly_a_hole_is_not_copied_by_spark(tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    tree = tree_of(tmp_path)
    reading = choose(tree, StateRequest())
    path = next(path for path in tree.files_below("state/0") if path.endswith((".delta", ".zip")))
    os.truncate(tmp_path / path, 1 << 40)
    no_spark: Any = None
    with (
        pytest.raises(DamageError, match=f"{path} is mostly a hole"),
        state_frame(no_spark, tree, reading),
    ):
        pass


# values


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (t.DecimalType(38, 18), Decimal("1.000000000000000001"), "1.000000000000000001"),
        (t.BinaryType(), bytearray(b"\x00\xff"), "AP8="),
        (t.DoubleType(), float("nan"), "NaN"),
        (t.DoubleType(), float("-inf"), "-Infinity"),
        (t.DoubleType(), 0.5, 0.5),
        (t.BooleanType(), True, True),
        (t.DateType(), date(2026, 1, 2), "2026-01-02"),
        (t.TimestampNTZType(), datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),  # noqa: DTZ001
        (t.DayTimeIntervalType(), timedelta(seconds=5), "0:00:05"),
        (t.MapType(t.StringType(), t.IntegerType()), {"a": 1}, {"a": 1}),
        (t.MapType(t.IntegerType(), t.StringType()), {7: "a"}, [{"key": 7, "value": "a"}]),
        (t.ArrayType(t.DecimalType(2, 1)), [Decimal("1.5"), None], ["1.5", None]),
        (
            t.StructType().add("a", t.IntegerType()).add("b", t.BinaryType()),
            Row(a=None, b=b"\x01"),
            {"a": None, "b": "AQ=="},
        ),
        (t.StructType(), Row(), {}),
    ],
)
def test_every_value_has_a_place_in_json(kind: t.DataType, value: Any, expected: Any) -> None:
    found = plain(value, kind)
    assert found == expected
    json.dumps(found, allow_nan=False)


def test_a_time_with_a_zone_is_told_in_utc() -> None:
    local = datetime.fromtimestamp(1_767_225_600)  # noqa: DTZ006 - as Spark gives it
    assert plain(local, t.TimestampType()) == "2026-01-01T00:00:00+00:00"


class RunsOn:
    """A query in a directory that commits a batch, and removes the oldest one, when it is read."""

    def __init__(self, root: Path, steps: int) -> None:
        self.root, self.steps, self.newest = root, steps, 2

    def go_on(self) -> None:
        if not self.steps:
            return
        self.steps -= 1
        self.newest += 1
        for log in ("offsets", "commits"):
            here = self.root / log
            (here / f"{self.newest}").write_bytes((here / f"{self.newest - 1}").read_bytes())
            for batch in range(self.newest):
                (here / f"{batch}").unlink(missing_ok=True)

    @contextmanager
    def frame(self, _: object, files: Tree, reading: StateSelection) -> Iterator[Any]:
        """In place of Spark's reader: it finds what the directory has, and not what it had."""
        self.go_on()
        if reading.batch != self.newest:
            where = f"{files.uri}: state/0/0/{reading.batch + 1}.delta does not exist"
            raise DamageError("a file that the state needs is not there", where=where)
        yield f"rows of {reading.batch}"


def rows_in(directory: LocalDirectory, asked: StateRequest) -> object:
    no_spark: Any = None
    return read_state(directory, asked, no_spark, lambda frame, _: frame)


def test_state_that_a_running_query_removes_meanwhile_is_that_of_a_newer_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path, 3)
    query = RunsOn(tmp_path, 3)
    monkeypatch.setattr(state_rows, "state_frame", query.frame)
    assert rows_in(LocalDirectory(tmp_path), StateRequest()) == "rows of 5"


def test_a_batch_that_a_running_query_removes_meanwhile_is_not_there_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path, 3)
    monkeypatch.setattr(state_rows, "state_frame", RunsOn(tmp_path, 1).frame)
    with pytest.raises(CheckpointNotFoundError, match="batch 2 is not among the committed ones"):
        rows_in(LocalDirectory(tmp_path), StateRequest(batch=2))


def test_state_that_a_running_query_removes_at_every_try_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path, 3)
    monkeypatch.setattr(state_rows, "state_frame", RunsOn(tmp_path, 100).frame)
    with pytest.raises(CheckpointNotFoundError, match=r"removed while .* 5 times"):
        rows_in(LocalDirectory(tmp_path), StateRequest())


def test_files_that_a_running_query_removes_at_every_try_are_not_called_damaged(
    tmp_path: Path,
) -> None:
    make_copy(tmp_path, 3)
    query = RunsOn(tmp_path, 100)

    def vanish(tree: Tree) -> None:
        query.go_on()
        tree.read(f"offsets/{tree.batches('offsets')[-1]}")

    with pytest.raises(CheckpointNotFoundError, match=r"removed while .* 5 times"):
        settled(LocalDirectory(tmp_path), vanish)


def test_damage_that_stays_while_a_query_runs_on_is_told(tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    query = RunsOn(tmp_path, 100)

    def damaged(tree: Tree) -> None:
        query.go_on()
        raise DamageError("a description cannot be read", where=tree.uri)

    with pytest.raises(DamageError, match="a description cannot be read"):
        settled(LocalDirectory(tmp_path), damaged)


def test_an_entry_that_is_removed_after_the_listing_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path, 3)
    query = RunsOn(tmp_path, 2)

    def choose_late(files: Tree, asked: StateRequest) -> StateSelection:
        query.go_on()
        return choose(files, asked)

    monkeypatch.setattr(state_rows, "choose", choose_late)
    monkeypatch.setattr(state_rows, "state_frame", query.frame)
    assert rows_in(LocalDirectory(tmp_path), StateRequest()) == "rows of 4"


def test_state_that_is_missing_where_nothing_happens_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path, 3)
    query = RunsOn(tmp_path, 0)
    query.newest = 9
    monkeypatch.setattr(state_rows, "state_frame", query.frame)
    with pytest.raises(DamageError, match="is not there"):
        rows_in(LocalDirectory(tmp_path), StateRequest())


# what is asked before Spark starts

Before = Callable[[LocalDirectory], object]


def by_the_command(directory: LocalDirectory) -> object:
    write_rows(directory, StateRequest(), RowOutput("json", None, 1))
    return None


def by_the_page(directory: LocalDirectory) -> object:
    return RowSource(lambda: NO_SPARK, directory=lambda: directory).read(RowsAsked(), no_bar)


NO_SPARK: Any = MagicMock()


@pytest.mark.parametrize("ask", [by_the_command, by_the_page])
def test_a_query_that_runs_on_before_spark_starts_is_not_called_damaged(
    ask: Before, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def no_rows(directory: LocalDirectory, *_: object) -> dict[str, Any]:
        read.append(directory)
        return {}

    for module in (state_output, row_source):
        monkeypatch.setattr(module, "read_state", no_rows)
    monkeypatch.setattr(state_output, "a_session", lambda: NO_SPARK)
    steps = Steps(LocalDirectory, r"^(open|scandir)$")
    make_copy(tmp_path / "counted", 3)
    count = steps.count(lambda: ask(LocalDirectory(tmp_path / "counted")))
    assert count > 5
    for at in range(count):
        root = tmp_path / f"{at}"
        make_copy(root, 3)
        met = steps.overlap(lambda: ask(LocalDirectory(root)), at, RunsOn(root, 1).go_on, 5.0)  # noqa: B023
        assert met.first_error is None, met
    assert len(read) == count + 1
