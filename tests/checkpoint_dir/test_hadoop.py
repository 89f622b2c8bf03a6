"""A directory on a file system that only Hadoop knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import open_store
from seamark.checkpoint_dir.places.directory import Tree, open_directory
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.cli.app import run
from seamark.errors import CheckpointNotFoundError, RefusedError, SeamarkError
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from tests.checkpoint_dir.support.directories import make_copy
from tests.checkpoint_dir.support.mounts import mounted_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    with mounted_folder(spark, tmp_path / "data") as uri:
        yield uri


def test_a_directory_that_only_hadoop_knows_is_taken_and_restored(
    mounted: str, tmp_path: Path
) -> None:
    local = make_copy(tmp_path / "data" / "ck", 3)
    directory = open_directory(f"{mounted}/ck")
    assert isinstance(directory, HadoopDirectory)
    tree = Tree.of(directory)
    assert sorted(tree.files_below(".")) == sorted(local.files_below("."))
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(directory, store)
        assert not take_snapshot(directory, store).is_new
        restore_directory(store, taken.checkpoint_id, open_directory(f"{mounted}/new/ck"))
    there = Tree.of(open_directory(f"{mounted}/new/ck"))
    assert there.batches("commits") == [1, 2]
    for path in there.files_below("state"):
        assert there.read(path) == local.read(path)
    directory.close()


def test_a_link_on_a_local_disk_is_refused_whatever_leads_there(
    mounted: str, tmp_path: Path
) -> None:
    make_copy(tmp_path / "data" / "ck", 3)
    (tmp_path / "secret").write_text("bytes of somebody else")
    (tmp_path / "data" / "ck" / "state" / "0" / "0" / "9.delta").symlink_to(tmp_path / "secret")
    directory = open_directory(f"{mounted}/ck")
    with pytest.raises(RefusedError, match="is a link"):
        directory.listing()
    directory.close()


def test_files_are_replaced_and_removed_and_a_missing_one_is_told(mounted: str) -> None:
    directory = open_directory(f"{mounted}/ck")
    with pytest.raises(CheckpointNotFoundError):
        directory.listing()
    directory.write("offsets/0", b"one")
    directory.write("offsets/0", b"another")
    assert directory.read("offsets/0") == b"another"
    assert list(directory.listing()) == ["offsets/0"]
    directory.remove(["offsets/0", "offsets/9"])
    with pytest.raises(FileNotFoundError):
        directory.read("offsets/0")
    directory.close()


def test_a_scheme_that_hadoop_does_not_know_is_one_clear_paragraph(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    with pytest.raises(SeamarkError, match="nowhere"):
        open_directory("nowhere://host/ck")
    assert run(["spark", "snapshot", "nowhere://host/ck", "memory://x"]) == 7
    assert "Traceback" not in capsys.readouterr().err
