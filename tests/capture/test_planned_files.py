"""Files that an epoch has read: which are gone and which are others is said by their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.capture.planned_files import (
    PlannedFile,
    changed_files,
    modified_by,
    planned_files,
)
from seamark.errors import DamageError
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


@pytest.mark.parametrize("uri", ["file://[x/a", "file:///a%00b", "s3://[/a"])
def test_a_path_that_is_none_is_damage(uri: str) -> None:
    with pytest.raises(DamageError, match="sources/0/0 names a file by what is no URI"):
        changed_files(plan((uri, 1)), lambda _: None)


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
    with pytest.raises(DamageError, match="which is no URI"):
        modified("viewfs-none://x/a b")
    # what is no local path goes by Hadoop, which knows this as a path of the default file system
    viewed = uri.replace("file://", "viewfs-none://x")
    with pytest.raises(Exception, match="viewfs-none"):
        modified(viewed)
