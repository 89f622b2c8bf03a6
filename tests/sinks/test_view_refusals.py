"""What a view refuses before the first row, what it warns of, and what it never tells."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from seamark.errors import InvalidInputError, RefusedError, SeamarkError
from seamark.progress.redis.client import judge_persistence
from seamark.sinks import KeyValueSink
from seamark.sinks.keyvalue.view_columns import Shape
from seamark.testing.conformance.sink_examples import PIPELINE, SINK
from tests.sinks.support.views import HandWrittenView, World, lines, rows_of, told
from tests.support.databases import redis_server
from tests.support.skipped import or_skip


def test_a_view_belongs_to_one_output_of_one_pipeline(world: World) -> None:
    world.run(range(1, 2))
    stranger = HandWrittenView(world.url, staging=world.given)
    for pipeline, sink in ((PIPELINE, "others"), ("others", SINK)):
        with pytest.raises(RefusedError, match=f"belongs to the output '{SINK}'") as refused:
            stranger.open(pipeline, sink, None)
        assert "a view of its own" in str(refused.value)
    stranger.close()
    assert world.epoch() == 1


def test_a_view_keeps_its_key(world: World) -> None:
    world.run(range(1, 2))
    other = HandWrittenView(world.url, staging=world.given, key=["n", "time"])
    with pytest.raises(RefusedError, match="known by n, not by n, time"):
        other.open(PIPELINE, SINK, None)
    other.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://", "MemorySink"),
        ("/data/view", "rocksdb:///abs/path"),
        ("rocksdb://data/view", "rocksdb:///abs/path"),
        ("rocksdb:///data#view", "with nothing behind it"),
        ("redis://host:port/0", "cannot be read"),
        ("redis://[::1/0", "cannot be read"),
        ("redis://host/zero", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_right_is_told_at_once(url: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        KeyValueSink(url, key="n", staging="/tmp/staging")


def test_redis_needs_a_folder_that_survives() -> None:
    with pytest.raises(InvalidInputError, match="needs staging="):
        KeyValueSink("redis://127.0.0.1/0", key="n")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": "x"}, "key: there is no column 'x'.*The columns are n, gone"),
        ({"key": "window"}, "key: the column 'window' .* more than one value.*window.start"),
        ({"key": "n", "order_by": "window"}, "order_by: the column 'window'"),
        ({"key": "n", "order_by": "x.y"}, "order_by: there is no column 'x.y'"),
        ({"key": "n", "delete_where": "n"}, "delete_where: 'n' is bigint, and must be a boolean"),
        ({"key": "n", "expire": "gone"}, "expire: 'gone' is boolean, and must be a timestamp"),
    ],
)
def test_columns_that_cannot_become_a_view_are_told(options: dict[str, Any], says: str) -> None:
    from pyspark.sql.types import StructType

    window = StructType().add("start", "timestamp").add("end", "timestamp")
    schema = StructType().add("n", "long").add("gone", "boolean").add("window", window)
    given = {"delete_where": None, "order_by": None, "expire": None, **options}
    with pytest.raises(RefusedError, match=f"(?s){says}"):
        Shape.of(**given).check(schema)


@pytest.mark.parametrize("key", ["", [], ["n", "n"], ["n", ""], [1]])
def test_a_key_is_named_by_columns(key: Any) -> None:
    with pytest.raises(InvalidInputError):
        KeyValueSink("rocksdb:///data/view", key=key)


# secrets


SECRET = "s3cr3t/&#?@:pässword"


@pytest.mark.parametrize("in_query", [False, True])
def test_I10_a_password_is_in_no_description_record_or_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_query: bool
) -> None:
    password = quote(SECRET, safe="")
    with or_skip("Redis", redis_server()) as server:
        with Redis.from_url(server.url) as client:
            client.config_set("requirepass", SECRET)
        host = f"127.0.0.1:{server.port}/0"
        url = f"redis://{host}?password={password}" if in_query else f"redis://:{password}@{host}"
        sink = HandWrittenView(f"{url}&namespace=x".replace("/0&", "/0?"), staging=tmp_path)
        told_of: list[object] = [sink.describe()]
        with caplog.at_level(logging.DEBUG):
            sink.open(PIPELINE, SINK, None)
            sink.stage(lines(*rows_of(1)), told(1), "a1")
            committable = sink.prepare()
            sink.commit(committable)
            server.stop()
            for step in (sink.newest, sink.prepare, lambda: sink.commit({**committable})):
                with pytest.raises(SeamarkError) as failed:
                    step()
                told_of += [str(failed.value), repr(failed.value), failed.value.__cause__]
            sink.close()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    said = "\n".join(map(str, [*told_of, committable, caplog.text, files]))
    for text in (SECRET, password, "s3cr3t", "pässword"):
        assert text not in said


@pytest.mark.parametrize("password", ["pa/ss", "pa#ss", "pa?ss", "12/ss", "pa/s@s"])
def test_I10_a_password_that_was_not_quoted_is_not_taken_for_a_path(password: str) -> None:
    url = f"redis://:{password}@127.0.0.1:1/0"
    try:
        said = str(KeyValueSink(url, key="n", staging="/tmp/staging").describe())
    except InvalidInputError as error:
        said = str(error)
        assert "%2F" in said
    assert "ss" not in said.replace("password", "")


# how durable the server is


@pytest.mark.parametrize(
    ("config", "info", "says"),
    [
        ({"appendonly": "yes", "appendfsync": "always"}, {}, []),
        ({"appendonly": "no"}, {}, ["appendonly is off"]),
        ({"appendonly": "yes", "appendfsync": "everysec"}, {}, ["appendfsync is everysec"]),
        ({"appendonly": "yes", "appendfsync": "no"}, {}, ["appendfsync is no"]),
        (None, {"aof_enabled": 0}, ["appendonly is off"]),
        (None, {"aof_enabled": 1, "aof_last_write_status": "err"}, ["failed to write its log"]),
        (None, None, ["does not say how durable"]),
        (
            {"appendonly": "yes", "maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
            {},
            ["drops keys by itself"],
        ),
        ({"appendonly": "yes", "maxmemory": "0", "maxmemory-policy": "allkeys-lru"}, {}, []),
        (
            {"appendonly": "no", "maxmemory": "1", "maxmemory-policy": "volatile-ttl"},
            {},
            ["appendonly is off", "drops keys by itself"],
        ),
    ],
)
def test_what_a_restart_may_lose_is_judged_by_what_the_server_says(
    config: dict[str, str] | None, info: dict[str, Any] | None, says: list[str]
) -> None:
    found = judge_persistence(config, info)
    assert len(found) == len(says)
    assert all(word in warning for word, warning in zip(says, found, strict=True)), found


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"appendonly": False}, "appendonly is off"),
        ({"fsync": "everysec"}, "appendfsync is everysec"),
        ({}, None),
    ],
)
def test_a_server_that_may_lose_epochs_is_warned_of_when_the_view_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], says: str | None
) -> None:
    with (
        or_skip("Redis", redis_server(**options)) as server,
        caplog.at_level(logging.WARNING),
    ):
        sink = HandWrittenView(f"{server.url}?namespace=x", staging=tmp_path)
        sink.open(PIPELINE, SINK, None)
        sink.close()
    said = [record.message for record in caplog.records if "seamark" in record.name]
    if says is None:
        assert said == []
    else:
        assert len(said) == 1
        assert says in said[0]
        assert "CONFIG SET" in said[0], "and what to do about it"
