"""What a Delta or Iceberg table has seen of a query, told from its own files."""

from __future__ import annotations

import gzip
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seamark import limits
from seamark.checkpoint_dir.places.directory import Directory, FileEntry
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.cli.spark.arguments import opened_directory
from seamark.errors import DamageError, RefusedError, StoreUnavailableError
from seamark.native.sink_tables import table_at
from seamark.native.table_log import TableAt
from tests.native.support.tables import QUERY, delta_table, iceberg_table

OTHER = "11111111-2222-3333-4444-555555555555"
NEW = "99999999-2222-3333-4444-555555555555"
NEWER = "00000000-2222-3333-4444-555555555555"


def look(table: Path, batch: int) -> TableAt:
    return table_at(opened_directory, str(table), QUERY, batch)


@pytest.fixture(params=["delta", "iceberg"])
def make(request: pytest.FixtureRequest) -> Any:
    return delta_table if request.param == "delta" else iceberg_table


def test_the_version_before_the_first_later_batch_is_told(make: Any, tmp_path: Path) -> None:
    # version or snapshot 0 makes the table; somebody else writes between batch 1 and 2
    ids = make(tmp_path, [None, (QUERY, 0), (QUERY, 1), (OTHER, 7), (QUERY, 2), (QUERY, 3)])
    at = look(tmp_path, 1)
    assert (at.newest_batch, at.version) == (3, ids[3])
    assert at.is_ahead_of(1)
    assert look(tmp_path, 2).version == ids[4]


def test_a_table_that_is_not_ahead_has_nothing_to_undo(make: Any, tmp_path: Path) -> None:
    make(tmp_path, [None, (QUERY, 0), (QUERY, 1)])
    for batch in (1, 2):
        at = look(tmp_path, batch)
        assert (at.newest_batch, at.version, at.is_ahead_of(batch)) == (1, None, False)


def test_a_table_that_does_not_know_the_query_says_so(make: Any, tmp_path: Path) -> None:
    make(tmp_path, [None, (OTHER, 5)])
    assert look(tmp_path, 5).newest_batch is None


@pytest.mark.parametrize(
    "later",
    [
        [(NEW, 3), (NEW, 4)],
        [None, (NEW, 5)],  # a batch without rows has no commit
        [(NEW, 3), (NEWER, 3), (NEW, 4)],
    ],
)
def test_batches_that_the_same_checkpoint_went_on_with_under_a_new_id_are_told(
    make: Any, tmp_path: Path, later: list[tuple[str, int] | None]
) -> None:
    commits = [(QUERY, 0), (OTHER, 8), (QUERY, 2), *later, (OTHER, 9)]
    versions = make(tmp_path, commits)
    with pytest.raises(RefusedError, match="what follows batch 2 under another id") as refused:
        look(tmp_path, 2)
    first = next(number for number, commit in enumerate(commits) if commit and commit[0] == NEW)
    assert f"Version {versions[first - 1]} is the last one without them" in str(refused.value)
    assert OTHER not in str(refused.value)


@pytest.mark.parametrize(
    "commits",
    [
        [(OTHER, 8), (QUERY, 2), (OTHER, 9)],  # it was there before
        [(OTHER, 2), (QUERY, 2), (OTHER, 3), (QUERY, 3), (OTHER, 4)],
        [(QUERY, 2), (OTHER, 0), (OTHER, 1), (OTHER, 9)],  # it has begun since
    ],
)
def test_another_query_that_writes_beside_it_is_none_that_went_on(
    make: Any, tmp_path: Path, commits: list[tuple[str, int]]
) -> None:
    make(tmp_path, commits)
    newest = max(number for name, number in commits if name == QUERY)
    assert look(tmp_path, newest).newest_batch == newest


def test_batches_without_a_commit_of_their_own_make_no_difference(
    make: Any, tmp_path: Path
) -> None:
    ids = make(tmp_path, [None, (QUERY, 0), (QUERY, 5)])
    at = look(tmp_path, 2)
    assert (at.newest_batch, at.version) == (5, ids[1])


def test_a_log_that_was_cleaned_up_does_not_make_a_version_up(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (QUERY, 0), (QUERY, 1), (QUERY, 2), (QUERY, 3)])
    for number in (0, 1, 2):
        (tmp_path / "_delta_log" / f"{number:020}.json").unlink()
    at = look(tmp_path, 0)
    assert (at.newest_batch, at.version) == (3, None)
    assert look(tmp_path, 1).version == 2  # the commit of batch 2 is there


@pytest.mark.parametrize(
    "line",
    ['{"txn"', '{"txn":5}', '{"txn":{"appId":"a"}}', '{"txn":' + "[" * 100_000],
)
def test_a_commit_that_cannot_be_read_is_no_answer(tmp_path: Path, line: str) -> None:
    delta_table(tmp_path, [None])
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(line)
    with pytest.raises(DamageError, match=r"00001\.json cannot be read"):
        look(tmp_path, 1)


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta_table(tmp_path, [None, (QUERY, 1)])
    monkeypatch.setattr(limits, "LARGEST_TABLE_FILE", 10)
    with pytest.raises(RefusedError, match="files up to 10 are read"):
        look(tmp_path, 1)
    iceberg_table(tmp_path / "zipped", [(QUERY, 0)])
    zipped = tmp_path / "zipped" / "metadata" / "00010-abc.gz.metadata.json"
    zipped.write_bytes(gzip.compress(b" " * 100_000))
    monkeypatch.setattr(limits, "LARGEST_TABLE_FILE", 1000)
    with pytest.raises(DamageError, match="unpacks to more than 1000 bytes"):
        look(tmp_path / "zipped", 1)


def test_a_folder_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no Delta or Iceberg table"):
        look(tmp_path, 1)


def test_a_log_of_empty_lines_costs_little(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (QUERY, 3)])
    commit = tmp_path / "_delta_log" / f"{1:020}.json"
    commit.write_bytes(b"\n" * (16 << 20) + commit.read_bytes())
    tracemalloc.start()
    try:
        assert look(tmp_path, 3).newest_batch == 3
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


class CleanedUp(LocalDirectory):
    """A directory in which something is done right before and after each listing."""

    before: Callable[[], object]
    after: Callable[[], object]

    def listing(self) -> dict[str, FileEntry]:
        self.before()
        found = super().listing()
        self.after()
        return found


def look_during(table: Path, before: Callable[[], object], after: Callable[[], object]) -> TableAt:
    @contextmanager
    def opened(url: str) -> Iterator[Directory]:
        directory = CleanedUp(url)
        directory.before, directory.after = before, after
        yield directory
        directory.close()

    return table_at(opened, str(table), QUERY, 1)


def test_a_log_that_is_cleaned_up_meanwhile_is_listed_again(make: Any, tmp_path: Path) -> None:
    make(tmp_path, [None, (QUERY, 0), (QUERY, 1), (QUERY, 2), (QUERY, 3)])
    gone = next(tmp_path.glob("*/*3.*json"))  # the commit of batch 2, or the metadata file

    def clean_up() -> None:
        if gone.exists():
            shutil.copy(gone, gone.with_name("v4.metadata.json"))
            gone.unlink()

    at = look_during(tmp_path, lambda: None, clean_up)
    assert not gone.exists()
    assert at.newest_batch == 3


def test_a_log_that_is_cleaned_up_without_an_end_is_an_outage(make: Any, tmp_path: Path) -> None:
    make(tmp_path, [None, (QUERY, 0), (QUERY, 1), (QUERY, 2), (QUERY, 3)])
    gone = next(tmp_path.glob("*/*3.*json"))
    kept = gone.read_bytes()
    with pytest.raises(StoreUnavailableError, match="is being cleaned up") as outage:
        look_during(tmp_path, lambda: gone.write_bytes(kept), gone.unlink)
    assert gone.name in str(outage.value)
    assert "Try again" in str(outage.value)
