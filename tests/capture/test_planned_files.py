"""Files that an epoch has read: which are gone and which are others is said by their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.capture.planned_files import (
    DeclaredInput,
    PlannedFile,
    changed_files,
    modified_by,
    planned_files,
)
from seamark.capture.plans import install_plan
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(*files: tuple[str, int]) -> Plan:
    lines = [f'{{"path":"{uri}","timestamp":{at},"batchId":0}}' for uri, at in files]
    return Plan("v1\n{}\n-", {"sources/0/0": "\n".join(["v1", *lines])})


def test_entries_of_other_sources_name_no_files() -> None:
    odd = Plan("v1", {"sources/0/0": 'v1\n{"t":{"0":4}}\nnonsense\n7\n{"path":3}'})
    assert list(planned_files(odd)) == []
    assert list(planned_files(plan(("file:/a", 7)))) == [PlannedFile("file:/a", 7)]


def test_files_that_are_as_they_were_are_not_mentioned() -> None:
    assert changed_files(plan(("a", 1), ("b", 2)), {"a": 1, "b": 2}.get) == []


def test_a_file_that_is_gone_and_one_that_was_modified_are_named() -> None:
    found = changed_files(plan(("a", 1), ("b", 2), ("c", 3)), {"a": 1, "c": 4}.get)
    assert found == [
        "a file that it read (b) is gone, which Spark takes for a file without rows",
        "a file that it read (c) is modified since",
    ]


def test_of_many_files_three_are_named_and_a_thousand_looked_at() -> None:
    many = plan(*((f"f{n}", 1) for n in range(1500)))
    asked: list[str] = []

    def gone(uri: str) -> None:
        asked.append(uri)

    (text,) = changed_files(many, gone)
    assert text.startswith("1000 files that it read (f0, f1, f2 and 997 more) are gone")
    assert len(asked) == 1000


@pytest.mark.warm
def test_local_files_and_those_that_hadoop_reaches_are_looked_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "a b.json"
    file.write_text("{}")
    os.utime(file, (1_700_000_000, 1_700_000_000.5))
    modified = modified_by(spark)
    uri = file.as_uri()
    assert "%20" in uri
    assert modified(uri) == 1_700_000_000_500
    assert modified(f"{uri}.none") is None
    # what is no local path goes by Hadoop, which knows this as a path of the default file system
    viewed = uri.replace("file://", "viewfs-none://x")
    with pytest.raises(Exception, match="viewfs-none"):
        modified(viewed)


# files that a source is declared to read


def test_a_plan_of_files_below_the_declared_folder_is_installed(tmp_path: Path) -> None:
    for folder, uri in (
        ("file:/data/in", "file:///data/in/1.json"),
        ("file:/data/a b", "file:///data/a%20b/c/1.json"),
        ("file:/data/one.json", "file:/data/one.json"),
        ("file:/", "file:///data/1.json"),
        ("file:", "file:///data/1.json"),
        ("HDFS://NN:8020/in", "hdfs://nn:8020/in/1.json"),
        ("s3a://bucket/in", "s3a://bucket/in/%C3%BC.json"),
        ("s3a://bucket", "s3a://bucket/1.json"),
    ):
        copy = LocalCopy(str(tmp_path))
        install_plan(copy, 0, plan((uri, 1)), [DeclaredInput("rows", folder)])
        assert uri in (copy.read_text("sources/0/0") or "")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///other/1.json",
        "file:///data/input/1.json",
        "file:///data/in/../other/1.json",
        "file:///data/in/%2e%2e/other/1.json",
        "file:///data/in%2f..%2fother/1.json",
        "file://server/data/in/1.json",
        "hdfs://127.0.0.1:1/data/in/1.json",
        "/data/in/1.json",
        "data/in/1.json",
        "file:data/in/1.json",
        "fi\\tle:///data/in/1.json",
        "file:///data/in?/../../other",
        "file:///data/in#x",
        "//[data/in",
        "",
    ],
)
def test_a_plan_never_has_a_source_read_files_outside_of_its_folder(
    tmp_path: Path, uri: str
) -> None:
    outside = plan(("file:///data/in/0.json", 1), (uri, 1))
    with pytest.raises(RefusedError, match="source 'rows' was planned to read a file") as error:
        install_plan(LocalCopy(str(tmp_path)), 0, outside, [DeclaredInput("rows", "file:/data/in")])
    assert "is not below file:/data/in" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entry",
    [
        'v1\r{"path":"file:/x"}\n{"path":"file:/data/in/1"}',
        'v1\n{"path":"file:/x","path":"file:/data/in/1"}',
        'v1\n{"path":"file:/data/in/1"}\r{"path":"file:/x"}',
        'v1\n{"path":7}',
        "v1\n[]",
        "v1\n{}",
        "v1\nnonsense",
    ],
)
def test_an_entry_that_spark_may_read_in_another_way_is_not_installed(
    tmp_path: Path, entry: str
) -> None:
    odd = Plan("v1\n{}\n-", {"sources/0/0": entry})
    with pytest.raises(DamageError, match="sources/0/0 does not list files"):
        install_plan(LocalCopy(str(tmp_path)), 0, odd, [DeclaredInput("rows", "file:/data/in")])


def test_each_source_has_its_own_folder_and_others_are_not_looked_at(tmp_path: Path) -> None:
    files = Plan(
        "v1\n{}\n-",
        {"sources/0/0": 'v1\n{"t":{"0":4}}', "sources/1/0": 'v1\n{"path":"file:/b/1"}'},
    )
    install_plan(LocalCopy(str(tmp_path)), 0, files, [None, DeclaredInput("b", "file:/b")])
    install_plan(LocalCopy(str(tmp_path)), 0, files, [None])
    with pytest.raises(RefusedError, match="source 'a'"):
        install_plan(LocalCopy(str(tmp_path)), 0, files, [None, DeclaredInput("a", "file:/a")])
