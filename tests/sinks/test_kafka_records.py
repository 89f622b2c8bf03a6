"""What a broker would refuse about a record is found before the epoch is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.errors import DamageError, RefusedError
from seamark.limits import MIB
from seamark.sinks.epoch_folder import StoredFile
from seamark.sinks.kafka.columns import RecordColumns
from seamark.sinks.kafka.staged_records import (
    RECORD_OVERHEAD,
    TopicFacts,
    TopicShare,
    check_shares,
    look_over,
    records_in,
    require_topics,
    shares_of_files,
)

ALL = RecordColumns("k", "v", headers="h", partition="p", topic="t")
PLAIN = RecordColumns(None, "v", headers=None, partition=None, topic=None)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def file(folder: Path, **columns: Any) -> str:
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
        "partition": pa.int32(),
        "topic": pa.string(),
    }
    table = pa.table({name: pa.array(rows, kinds[name]) for name, rows in columns.items()})
    path = f"{folder}/{len(list(folder.iterdir()))}.parquet"
    pq.write_table(table, path)
    return path


def header(key: str | None, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


def test_an_epoch_is_measured_by_topic_over_all_files(tmp_path: Path) -> None:
    paths = [
        file(tmp_path, value=[b"12345", None], key=[b"k", None], topic=["a", None]),
        file(tmp_path, value=[b"1" * 50], key=[None], topic=["a"], partition=[7]),
    ]
    shares = look_over(paths, "b", ALL)
    assert shares == {
        "a": TopicShare(2, RECORD_OVERHEAD + 50, 0, 7, without_key=1),
        "b": TopicShare(1, RECORD_OVERHEAD, 0, -1, without_key=1),
    }


def test_headers_count_towards_the_size_of_their_own_record(tmp_path: Path) -> None:
    rows = [None, [header("long", b"x" * 1000), header("b", None)], []]
    path = file(tmp_path, value=[b"1", b"1", b"1" * 500], headers=rows)
    assert look_over([path], "t", ALL)["t"].largest == RECORD_OVERHEAD + 1 + 1005 + 20


def test_records_come_back_as_they_were_staged(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        value=[b"1", None],
        key=[None, b"k"],
        partition=[None, 3],
        topic=[None, "other"],
        headers=[[header("h", b"v")], None],
    )
    (records,) = records_in([path], "t", ALL)
    assert records.values == [b"1", None]
    assert records.keys == [None, b"k"]
    assert records.partitions == [-1, 3]
    assert records.topics == ["t", "other"]
    assert records.headers == [[("h", b"v")], None]


UNDECLARED: dict[str, list[Any]] = {
    "key": [b"k"],
    "topic": ["payments"],
    "partition": [1],
    "headers": [[header("h", b"v")]],
}


@pytest.mark.parametrize("column", UNDECLARED)
@pytest.mark.parametrize("read", [look_over, records_in])
def test_staged_rows_that_choose_what_the_sink_leaves_to_no_column_are_damage(
    column: str, read: Any, tmp_path: Path
) -> None:
    plain = file(tmp_path, value=[b"1"])
    forged = file(tmp_path, value=[b"2"], **{column: UNDECLARED[column]})
    assert list(read([plain], "t", PLAIN))
    assert list(read([forged], "t", ALL))
    with pytest.raises(DamageError, match=f"does not declare: '{column}'"):
        list(read([plain, forged], "t", PLAIN))


@pytest.mark.parametrize("read", [look_over, records_in])
def test_a_staged_file_without_values_or_with_columns_of_no_record_is_damage(
    read: Any, tmp_path: Path
) -> None:
    strange = f"{tmp_path}/strange.parquet"
    pq.write_table(pa.table({"value": [b"1"], "Topic": ["payments"]}), strange)
    for path, said in [(file(tmp_path, key=[b"k"]), "columns of records"), (strange, "'Topic'")]:
        with pytest.raises(DamageError, match=said):
            list(read([path], "t", ALL))


def test_rows_of_a_sink_that_declares_more_than_was_staged_can_be_read(tmp_path: Path) -> None:
    (records,) = records_in([file(tmp_path, value=[b"1"])], "t", ALL)
    assert (records.topics, records.partitions, records.headers) == (None, None, None)


@pytest.mark.parametrize(
    ("found", "topic", "prepared"),
    [
        (["t"], "t", ["t"]),
        ([], "t", ["t"]),
        (["other"], "t", ["other"]),
        (["other"], "t", ["other", "t"]),
        (["a", "b"], None, ["b", "a"]),
        ([], None, []),
    ],
)
def test_rows_for_the_topics_that_were_prepared_are_sent(
    found: list[str], topic: str | None, prepared: list[str]
) -> None:
    require_topics(found, topic, prepared, "here")


@pytest.mark.parametrize(
    ("found", "topic", "prepared"),
    [
        (["t", "payments"], "t", ["t"]),
        (["payments"], "t", ["t"]),
        (["t"], "t", ["payments", "t"]),
        (["payments"], None, ["orders"]),
        ([], None, ["orders"]),
    ],
)
def test_rows_for_other_topics_than_were_prepared_are_damage(
    found: list[str], topic: str | None, prepared: list[str]
) -> None:
    with pytest.raises(DamageError, match="the staged rows are for the topics"):
        require_topics(found, topic, prepared, "here")


def test_a_row_without_a_topic_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, value=[b"1", b"2"], topic=["a", None])
    with pytest.raises(RefusedError, match="has no topic"):
        look_over([path], None, ALL)


@pytest.mark.parametrize(
    ("unfit", "why"),
    [
        (header(None, b"v"), "is null, or has no key"),
        (None, "is null, or has no key"),
        (header("a\0b", b"v"), "has a zero byte"),
    ],
)
def test_a_header_that_cannot_be_sent_as_it_is_is_refused(
    tmp_path: Path, unfit: Any, why: str
) -> None:
    path = file(tmp_path, value=[b"1", b"2"], headers=[[header("a", None), unfit], None])
    with pytest.raises(RefusedError, match=why):
        look_over([path], "t", ALL)


def test_a_text_that_is_not_utf_8_is_refused_as_the_key_of_a_header_and_as_a_topic(
    tmp_path: Path,
) -> None:
    broken = pa.array([b"\xed\xa0\x80"]).view(pa.string())
    headers = pa.StructArray.from_arrays(
        [broken, pa.array([b"v"])], fields=list(HEADERS.value_type)
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), headers)
    value = pa.array([b"1"])
    for name, column in (("headers", lists), ("topic", broken)):
        path = f"{tmp_path}/{name}.parquet"
        pq.write_table(pa.table({"value": value, name: column}), path)
        with pytest.raises(RefusedError, match="is not UTF-8"):
            look_over([path], "t", ALL)


@pytest.mark.parametrize(
    ("share", "facts", "said"),
    [
        (TopicShare(1, 1001), TopicFacts(1, limit=1000), "1001 bytes"),
        (TopicShare(1, 9, 0, 4), TopicFacts(4), "partition 4, and the topic 't' has 4"),
        (TopicShare(1, 9, -2, 1), TopicFacts(4), "partition -2"),
        (TopicShare(3, 9, without_key=2), TopicFacts(1, is_compacted=True), "2 rows have no key"),
        (TopicShare(1, 9), None, "'t', which does not exist"),
    ],
)
def test_what_a_topic_does_not_take_is_refused_by_name(
    share: TopicShare, facts: TopicFacts | None, said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        check_shares({"t": share}, {} if facts is None else {"t": facts}, "here")


def test_what_fits_is_not_refused() -> None:
    facts = TopicFacts(4, limit=1000, is_compacted=True)
    check_shares({"t": TopicShare(5, 1000, 0, 3)}, {"t": facts, "unused": facts}, "here")


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_every_file_is_sent_by_one_shard(shards: int) -> None:
    files = [StoredFile(f"part-{n}", size=n * 10, sha256="") for n in range(6)]
    shares = shares_of_files(files, shards)
    assert len(shares) == shards
    assert sorted(name for share in shares for name in share) == [file.name for file in files]
    assert shares == shares_of_files(files[::-1], shards), "whoever divides them, divides them so"


def test_equal_rows_of_a_small_file_are_not_all_unpacked_at_once(tmp_path: Path) -> None:
    rows, size = 1_000, 100_000
    path = file(tmp_path, value=[b"v" * size] * rows)
    assert Path(path).stat().st_size < size
    sizes = [
        sum(len(each or b"") for each in some.values) for some in records_in([path], "t", PLAIN)
    ]
    assert sum(sizes) == rows * size
    assert max(sizes) < 32 * MIB
    assert look_over([path], "t", PLAIN)["t"].rows == rows


def test_many_small_rows_come_together_and_in_their_order(tmp_path: Path) -> None:
    values = [str(number).encode() for number in range(30_000)]
    read = [some.values for some in records_in([file(tmp_path, value=values)], "t", PLAIN)]
    assert [each for some in read for each in some] == values
    assert len(read) == 2
