"""The list of an epoch's data files shows readers nothing but what the epoch has written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record

from seamark.errors import DamageError, RefusedError
from seamark.sinks.contract import Committable
from seamark.sinks.iceberg.data_files import write_list
from seamark.sinks.iceberg.data_names import new_token, says_attempt
from seamark.sinks.iceberg.staging import Staging
from seamark.testing.conformance.sink_examples import Writer, epoch
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten

NAME = f"00000-0-{new_token(iceberg.OUTPUT.name, 'a1')}.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    iceberg.make_table(tmp_path)
    return tmp_path


@pytest.fixture
def writer(folder: Path) -> Writer:
    return Writer(lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE), iceberg.frame)


def listed(path: str, size: int, content: DataFileContent = DataFileContent.DATA) -> DataFile:
    return DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        _spec_id=0,
    )


def forged(folder: Path, committable: Committable, file: DataFile) -> Committable:
    """What somebody makes of an epoch who can write to the store and beside the table."""
    table = iceberg.table_at(folder)
    staging = Staging.of(table, iceberg.OUTPUT)
    digest = write_list([file], table.metadata, staging, "a1")
    return {**committable, "list_digest": digest}


@pytest.mark.parametrize("named", ["file://{secret}", "{secret}", "file://{secret}#/{own}"])
def test_a_file_of_somebody_else_is_not_shown(writer: Writer, folder: Path, named: str) -> None:
    committable = writer.prepare([1, 2], epoch(1), "a1")
    secret = folder / "secret.parquet"
    pq.write_table(iceberg.lines([666, 667]), secret)
    path = named.format(secret=secret, own=NAME)
    wrong = forged(folder, committable, listed(path, secret.stat().st_size))
    with pytest.raises(DamageError, match="a file that the epoch did not write") as caught:
        writer.new_handle().commit(wrong)
    assert "secret.parquet" in caught.value.what
    assert iceberg.numbers(folder) == []


def test_a_list_does_not_remove_rows(writer: Writer, folder: Path) -> None:
    committable = writer.prepare([1, 2], epoch(1), "a1")
    (own,) = iceberg.data_files(folder)
    size = Path(own.removeprefix("file://")).stat().st_size
    deletes = listed(own, size, DataFileContent.POSITION_DELETES)
    with pytest.raises(DamageError, match="a file that the epoch did not write"):
        writer.new_handle().commit(forged(folder, committable, deletes))


def test_an_epoch_is_finished_after_the_table_has_chosen_another_place_for_files(
    writer: Writer, folder: Path
) -> None:
    committable = writer.prepare([1, 2], epoch(1), "a1")
    elsewhere = f"file://{folder}/warehouse/elsewhere"
    with iceberg.table_at(folder).transaction() as change:
        change.set_properties({"write.data.path": elsewhere})
    writer.new_handle().commit(committable)
    assert iceberg.numbers(folder) == [1, 2]


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        (f"s3://b/t/data/day=1/{NAME}", True),
        (f"/t/data/0101/0110-{NAME}", True),
        (f"s3://b/t/data/{NAME.replace('.parquet', '-part2.parquet')}", True),
        (f"s3://b/t/data/00000-0-{new_token(iceberg.OUTPUT.name, 'a2')}.parquet", False),
        (f"s3://b/t/data/00000-0-{new_token('other.bars', 'a1')}.parquet", False),
        (f"s3://b/{NAME}/secret.parquet", False),
        (f"s3://b/secret.parquet?{NAME}", False),
        (f"s3://b/secret.parquet?x/{NAME}", False),
        (f"s3://b/secret.parquet#/{NAME}", False),
        (f"/b/secret.parquet;{NAME}", False),
        (f"{NAME}\n", False),
    ],
    ids=itertools.count(),  # a name has another token in each process
)
def test_a_file_is_known_by_its_name_wherever_it_is(path: str, is_own: bool) -> None:
    assert says_attempt(path, iceberg.OUTPUT.name, "a1") is is_own


def test_a_table_that_gives_files_other_names_is_refused_before_anything_is_written(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provider(*_: Any) -> Any:
        return Renaming(f"file://{folder}/warehouse/db/rows/data")

    monkeypatch.setattr("pyiceberg.table.locations.load_location_provider", provider)
    with pytest.raises(RefusedError, match="without the name that it was to have"):
        writer.stage([1], epoch(1), "a1")
    assert iceberg.data_files(folder) == set()


class Renaming:
    """A location provider that has names of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def new_data_location(self, name: str, _: object = None) -> str:
        return f"{self._folder}/{len(name)}.parquet"


@pytest.mark.parametrize("left_out", ["list_digest", "keys_digest"])
def test_an_epoch_is_not_shown_without_what_was_staged_for_it(folder: Path, left_out: str) -> None:
    options: dict[str, Any] = {"mode": "upsert", "keys": ["n"]}
    writer = Writer(
        lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE, **options), iceberg.frame
    )
    writer.show([1], epoch(1), "a1")
    committable = writer.prepare([1, 2], epoch(2), "a2")
    assert committable[left_out] is not None
    with pytest.raises(DamageError, match="the checkpoint does not name it"):
        writer.new_handle().commit({**committable, left_out: None, "rows": 0, "files": 0})
    assert iceberg.numbers(folder) == [1]
    writer.new_handle().commit(committable)
    assert iceberg.numbers(folder) == [1, 2]


def test_a_checkpoint_does_not_choose_how_rows_are_partitioned(
    writer: Writer, folder: Path
) -> None:
    """Readers with a filter would not look into files whose partition is of another spec."""
    for old, buckets in ((None, 4), ("in4", 7)):
        with iceberg.table_at(folder).update_spec() as change:
            change.add_field("n", BucketTransform(buckets), f"in{buckets}")
            if old is not None:
                change.remove_field(old)
    committable = writer.prepare([*range(10)], epoch(1), "a1")
    assert committable["spec"] == 2
    for spec in (0, 1):
        with pytest.raises(DamageError, match=f"written with partition spec {spec}"):
            writer.new_handle().commit({**committable, "spec": spec})
    assert iceberg.numbers(folder) == []
    writer.new_handle().commit(committable)
    table = iceberg.table_at(folder)
    found = [table.scan(row_filter=f"n = {n}").to_arrow().num_rows for n in range(10)]
    assert found == [1] * 10
