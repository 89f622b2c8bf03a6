"""A store never has a pipeline read files that it is not declared to read."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.capture.declared_inputs import DeclaredInput
from seamark.capture.epoch_files import EpochFiles
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, RefusedError
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch import running_epoch
from seamark.pipeline.recovery.adoption import adopt_checkpoint
from seamark.pipeline.run_builder import QueryStarter
from seamark.sinks import FileSink
from seamark.store.index_parts import LOG
from tests.checkpoint_dir.support.directories import make_copy, source_entry
from tests.native.support.inspected import make_rocksdb
from tests.pipeline.support.workloads import put_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_pattern(spark: SparkSession, root: Path, format_name: str) -> Pipeline:
    p = Pipeline("rows", root / "store", progress=None, keep=10)
    reader = spark.readStream.schema("n int").format(format_name)
    stream = reader.load(f"{root}/in put/*.json")
    p.sink("rows", p.source("rows", stream), FileSink(root / "out"))
    return p


@pytest.mark.warm
@pytest.mark.parametrize(
    "format_name", ["json", "org.apache.spark.sql.execution.datasources.json.JsonFileFormat"]
)
def test_a_replay_reads_no_file_outside_of_the_folder_that_a_pattern_names(
    format_name: str, spark: SparkSession, tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for root, n in ((a, 1), (b, 2)):
        put_file(root / "in put", 0, [{"n": n}])
    mine = by_pattern(spark, a, format_name)
    mine.run(available_now=True)
    with mine.replay(1) as again:
        assert again.is_equal

    shutil.copytree(a / "store", b / "store")
    other = by_pattern(spark, b, format_name)
    assert other._declared().identity.inputs == [DeclaredInput("rows", f"file:{b}/in put", (0,))]
    with pytest.raises(RefusedError, match="source 'rows' was planned to read a file") as error:
        other.replay(1)
    assert f"is not below file:{b}/in put" in str(error.value)


@pytest.mark.warm
@pytest.mark.parametrize("policy", ["warn", "evolve"])
def test_a_source_goes_on_in_another_folder_by_a_pattern_and_is_told_so(
    policy: str, spark: SparkSession, tmp_path: Path
) -> None:
    def from_path(path: Path | str) -> Pipeline:
        p = Pipeline("rows", tmp_path / "store", progress=None, policy=policy)
        rows = p.source("rows", spark.readStream.schema("n int").json(str(path)))
        p.sink("rows", rows, FileSink(tmp_path / "out", format="json"))
        return p

    before, now = tmp_path / "in", tmp_path / "in2"
    put_file(before, 0, [{"n": 1}])
    from_path(before).run()
    put_file(now, 1, [{"n": 2}])
    with pytest.raises(RefusedError, match="go on in another folder") as error:
        from_path(now).run()
    assert "a pattern" in str(error.value.hint)
    from_path(f"{now}/*").run()
    assert shown(tmp_path) == [1, 2]


def secret_entry(file: Path, number: int) -> bytes:
    noted = {"path": file.as_uri(), "timestamp": 1_700_000_000_000, "batchId": number}
    return b"v1\n" + json.dumps(noted, separators=(",", ":")).encode()


def shown(root: Path) -> list[int]:
    texts = [file.read_text() for file in (root / "out").rglob("part-*")]
    return sorted(json.loads(line)["n"] for text in texts for line in text.splitlines())


def one_by_one(spark: SparkSession, root: Path) -> Pipeline:
    p = Pipeline("rows", root / "store", progress=None, keep=10)
    options = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1)
    stream = options.json(f"{root}/in/*.json")
    p.sink("rows", p.source("rows", stream), FileSink(root / "out", format="json"))
    return p


@pytest.mark.warm
def test_a_start_reads_no_file_that_only_a_checkpoint_has_noted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2):
        put_file(tmp_path / "in", n, [{"n": n}])
    secret = put_file(tmp_path / "home", 0, [{"n": 666}])
    taken = EpochFiles.logs

    def forged(self: EpochFiles, batch: int, commit: str) -> None:
        taken(self, batch, commit)
        if batch == 1:
            self._files[LOG]["sources/0/2"] = secret_entry(secret, 2)

    with monkeypatch.context() as patched:
        patched.setattr(EpochFiles, "logs", forged)
        one_by_one(spark, tmp_path).run(available_now=True)
    shutil.rmtree(tmp_path / "store" / "working")
    one_by_one(spark, tmp_path).run(available_now=True)
    assert shown(tmp_path) == [0, 1]
    put_file(tmp_path / "in", 2, [{"n": 2}])
    one_by_one(spark, tmp_path).run(available_now=True)
    assert shown(tmp_path) == [0, 1, 2]


def test_an_adopted_query_reads_no_file_that_only_its_directory_has_noted(tmp_path: Path) -> None:
    old, mine = make_copy(tmp_path / "old", 3), LocalCopy(tmp_path / "mine")
    old.write("sources/0/+3", source_entry(3).encode())  # to Java a number
    identity = PipelineIdentity(
        name="rows",
        structure={"state_partitions": 2, "operators": ["any"]},
        leaves=("in",),
        input_folders={"in": "file:/in"},
    )
    assert adopt_checkpoint(old, mine, identity).next_batch == 3
    assert sorted(mine.names("sources/0")) == ["0", "1", "2"]


@pytest.mark.warm
def test_a_replay_reads_no_file_that_its_plan_skips_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2):
        put_file(tmp_path / "in", n, [{"n": n}])
    secret = put_file(tmp_path / "home", 0, [{"n": 666}])
    taken, known = EpochFiles.logs, running_epoch.fingerprint

    def further(text: str) -> str:
        return text.replace('{"logOffset":1}', '{"logOffset":2}')

    def forged(self: EpochFiles, batch: int, commit: str) -> None:
        taken(self, batch, commit)
        logs = self._files[LOG]
        if batch == 0:
            logs["sources/0/2"] = secret_entry(secret, 2)
        if batch == 1:
            logs["offsets/1"] = further(logs["offsets/1"].decode()).encode()
            self._removed.add("sources/0/2")

    def fitting(timeline: str, lines: Sequence[str], sources: dict[str, str]) -> str:
        return known(timeline, [further(line) for line in lines], sources)

    with monkeypatch.context() as patched:
        patched.setattr(EpochFiles, "logs", forged)
        patched.setattr(running_epoch, "fingerprint", fitting)
        one_by_one(spark, tmp_path).run(available_now=True)
    with pytest.raises(DamageError, match="reads entries 1 to 2 of the log sources/0"):
        one_by_one(spark, tmp_path).replay(2)


def test_a_query_is_not_started_on_state_that_names_files_of_others(tmp_path: Path) -> None:
    copy = LocalCopy(make_rocksdb(tmp_path))
    listed = {"localFileName": "../../x.sst", "dfsSstFileName": "1-a.sst", "sizeBytes": 1}
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [listed]}))
    copy.write("state/0/0/3.zip", zipped.getvalue())
    starter: Any = QueryStarter.__new__(QueryStarter)
    starter._spark, starter._declared = None, SimpleNamespace(compiled=None)
    runner: Any = SimpleNamespace(copy=copy)
    with pytest.raises(DamageError, match="could lead out of its directory"):
        starter.start(runner)
