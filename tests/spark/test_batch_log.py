"""Spark's logs: read, made readable for people, and written as Spark writes them."""

from __future__ import annotations

import json

import pytest

from seamark import limits
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import (
    commit_text,
    log_offset,
    parse_commit,
    parse_offsets,
    readable_offset,
    require_unnamed,
)

DEEP = '{"a":' * 200_000
OFFSETS = (
    'v1\n{"batchWatermarkMs":5,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"4"}}\n'
    '{"logOffset":3}\n-'
)


def test_an_entry_of_the_offset_log_tells_watermark_partitions_and_lines() -> None:
    entry = parse_offsets(OFFSETS)
    assert (entry.watermark_ms, entry.state_partitions) == (5, 4)
    assert entry.lines == ('{"logOffset":3}', "-")
    assert entry.text == OFFSETS


@pytest.mark.parametrize(
    "text",
    ["", "v1", "v1\nnot json\n-", "v1\n[]\n-", "v9\n{}\n-", "v2\n{}\nx", f"v1\n{DEEP}\n-"],
    ids=range(7),
)
def test_a_torn_entry_is_damage(text: str) -> None:
    with pytest.raises(DamageError):
        parse_offsets(text)


@pytest.mark.parametrize("wrong", ["[]", "null", '"x"', "1e999"])
def test_settings_that_are_no_numbers_are_damage(wrong: str) -> None:
    conf = f'"conf":{{"spark.sql.shuffle.partitions":{wrong}}}'
    entry = parse_offsets(f'v1\n{{"batchWatermarkMs":{wrong},{conf}}}\n-')
    with pytest.raises(DamageError, match="watermark is not a number"):
        _ = entry.watermark_ms
    with pytest.raises(DamageError, match="number of partitions is not a number"):
        _ = entry.state_partitions


def test_source_evolution_is_refused_with_the_setting_that_ends_it() -> None:
    with pytest.raises(RefusedError, match="enableSourceEvolution"):
        require_unnamed(parse_offsets('v2\n{"batchWatermarkMs":0}\nalpha:{"logOffset":1}'))


def test_named_sources_keep_their_names_and_their_offsets() -> None:
    text = 'v2\n{"batchWatermarkMs":0}\nalpha:{"logOffset":1}\nbeta:-'
    entry = parse_offsets(text)
    assert (entry.names, entry.lines) == (("alpha", "beta"), ('{"logOffset":1}', "-"))
    assert entry.text == text


@pytest.mark.parametrize(
    ("line", "readable"),
    [
        ('{"trades":{"0":17,"1":20}}', {"trades-0": "17", "trades-1": "20"}),
        ('{"logOffset":3}', {"logOffset": "3"}),
        ("42", {"offset": "42"}),
        ("-", {}),
        ('{"offset":0,"timestamp":12}', {"offset": "0", "timestamp": "12"}),
        ('{"cursor":"abc","shards":{"a":{"x":1}}}', {"cursor": "abc", "shards": '{"a":{"x":1}}'}),
        ("not json", {"offset": "not json"}),
        ('{"t":{}}', {"t": "{}"}),
    ],
)
def test_offsets_of_every_kind_of_source_can_be_read(line: str, readable: dict[str, str]) -> None:
    assert readable_offset(line) == readable


def test_an_offset_that_is_nested_without_end_is_damage() -> None:
    with pytest.raises(DamageError, match="offset cannot be read"):
        readable_offset(DEEP)


def test_only_a_file_source_has_a_log_of_its_own() -> None:
    assert log_offset('{"logOffset":3}') == 3
    assert log_offset("7") is None
    assert log_offset("-") is None
    assert log_offset('{"logOffset":"x"}') is None
    assert log_offset('{"logOffset":1e999}') is None
    assert log_offset('{"logOffset":' + DEEP) is None


def test_a_commit_is_written_as_spark_writes_it_and_read_back() -> None:
    assert commit_text(5) == 'v1\n{"nextBatchWatermarkMs":5}'
    ids = {0: [["a"], ["b"]], 1: [["c", "d"], ["e", "f"]]}
    text = commit_text(7, ids)
    head, body = text.split("\n")
    assert head == "v2"
    assert json.loads(body)["stateUniqueIds"] == {
        "0": [["a"], ["b"]],
        "1": [["c", "d"], ["e", "f"]],
    }
    assert parse_commit(text) == (7, ids)
    assert parse_commit("v1\n{}") == (0, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "v1\n[]",
        "x\n{}",
        'v2\n{"stateUniqueIds":{"a":[]}}',
        f"v1\n{DEEP}",
        'v1\n{"nextBatchWatermarkMs":1e999}',
        'v1\n{"nextBatchWatermarkMs":[]}',
        'v1\n{"nextBatchWatermarkMs":9223372036854775808}',
    ],
    ids=range(9),
)
def test_a_torn_commit_is_damage(text: str) -> None:
    with pytest.raises(DamageError):
        parse_commit(text)


@pytest.mark.parametrize("ids", ["5", "null", "[7]", '["ab"]', "[[1]]", "[null]", '{"0":[]}'])
def test_a_commit_whose_state_ids_are_none_is_damage(ids: str) -> None:
    text = f'v2\n{{"nextBatchWatermarkMs":0,"stateUniqueIds":{{"0":{ids}}}}}'
    with pytest.raises(DamageError, match="ids of its state files"):
        parse_commit(text)


def test_names_that_are_repeated_for_each_partition_take_no_more_than_a_limit() -> None:
    parts = ",".join(f'"{number}":1' for number in range(100_000))
    topics = [f"{number:0200}" for number in range(4)]
    line = "{" + ",".join(f'"{topic}":{{{parts}}}' for topic in topics) + "}"
    assert limits.LARGEST_PREFIXES < 200 * 100_000
    assert [*readable_offset(line)] == topics
    assert readable_offset(line.replace(topics[1], "few"))["few-99999"] == "1"
