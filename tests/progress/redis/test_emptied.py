"""Redis that is emptied or written to by others, and URLs that would be taken apart wrongly."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from redis import Redis

from seamark.errors import DamageError, FencedError, InvalidInputError, OutcomeUnknownError
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from seamark.progress import SourceCheckpoint, SourceCheckpointStore, open_progress
from tests.progress.support.children import whole_number, write_number
from tests.progress.support.proxy import Fault, before
from tests.support.databases import RedisServer, redis_server
from tests.support.skipped import or_skip


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One that may be emptied."""
    with or_skip("Redis", redis_server(appendonly=False)) as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with Redis.from_url(server.url) as connected:
        yield connected


@pytest.fixture
def url(server: RedisServer) -> str:
    return f"{server.url}?namespace=n"


@pytest.fixture
def first(url: str, client: Any) -> Iterator[SourceCheckpointStore]:
    """A writer that has taken the store over as the first one."""
    client.flushall()
    with open_progress(url) as opened:
        write_number(opened, 1)
        yield opened


def taken_over(url: str, client: Any) -> SourceCheckpointStore:
    """A second writer of the emptied server, with the number that the first one had."""
    generation = client.hget("seamark:{n}:meta", "generation")
    client.flushall()
    second = open_progress(url)
    assert client.hget("seamark:{n}:meta", "generation") == generation
    write_number(second, 5)
    return second


def test_the_first_writer_of_an_emptied_server_is_fenced_by_a_second_one(
    first: SourceCheckpointStore, url: str, client: Any
) -> None:
    with taken_over(url, client) as second:
        for write in (
            partial(write_number, first, 2),
            first.clear_checkpoints,
            partial(first.write_config_hash, 1),
        ):
            with pytest.raises(FencedError, match="another writer"):
                write()
        assert whole_number(second) == 5
        assert second.read_config_hash() is None
        write_number(second, 6)
        assert whole_number(second) == 6


@pytest.mark.parametrize("has_read", [False, True])
def test_a_session_during_which_the_server_is_emptied_and_taken_over_writes_nothing(
    first: SourceCheckpointStore, url: str, client: Any, has_read: bool
) -> None:
    session = first.begin()
    if has_read:
        assert session.get("totals", b"key 0") == b"1"
    session.put("totals", b"key 0", b"of the first")
    session.stage_checkpoint("source", 2)
    with taken_over(url, client) as second:
        with pytest.raises(FencedError, match="another writer"):
            first.commit()
        assert whole_number(second) == 5


def test_a_commit_that_was_lost_is_not_sent_again_to_a_server_that_was_taken_over(
    server: RedisServer, url: str, client: Any
) -> None:
    client.flushall()
    seconds = []
    with (
        before(server.port) as proxy,
        open_progress(f"redis://127.0.0.1:{proxy.port}/0", namespace="n") as store,
    ):
        write_number(store, 1)
        proxy.arm(Fault.LOSE_REQUEST, lambda: seconds.append(taken_over(url, client)))
        with pytest.raises((OutcomeUnknownError, FencedError)):
            write_number(store, 2)
    (second,) = seconds
    assert whole_number(second) == 5
    second.close()


# a key that becomes something else


def test_a_key_that_becomes_a_string_later_is_told_with_what_was_applied(
    first: SourceCheckpointStore, client: Any
) -> None:
    def add(number: int) -> None:
        with first.session() as s:
            for space in ("a", "b"):
                s.put(space, b"key", b"%d" % number)
            s.stage_checkpoint("counter", number)

    add(1)
    client.set("seamark:{n}:data:b", "text")
    with pytest.raises(DamageError, match="the rest of the session WAS applied") as caught:
        add(2)
    assert "WRONGTYPE" in str(caught.value)
    assert not first.in_session
    assert first.get("a", b"key") == b"2", "that is what Redis does"
    assert first.read_checkpoint("counter") == SourceCheckpoint(2, None)
    client.delete("seamark:{n}:data:b")
    add(3)
    assert (first.get("a", b"key"), first.get("b", b"key")) == (b"3", b"3")


# URLs


def by_store(url: str) -> None:
    open_progress(url, namespace=None if "namespace" in url else "n").close()


def by_pipeline(url: str) -> None:
    ProgressRecord(url, "trades").bring_to(None)


Open = Callable[[str], None]


@pytest.mark.parametrize("open_it", [by_store, by_pipeline])
@pytest.mark.parametrize(
    "url",
    [
        "redis://:1234/s3cretpw@127.0.0.1:1/0?namespace=n",
        "redis://user:1234/s3cretpw@127.0.0.1:1/0?namespace=n",
        "redis://:1234?s3cretpw@127.0.0.1:1/0",
        "redis://user:1234?s3cretpw@127.0.0.1:1/0",
        "redis://:1234#s3cretpw@127.0.0.1:1/0",
        "redis://:s3cretpw/1234@127.0.0.1:1/0?namespace=n",
        "redis://:s3cretpw?1234@127.0.0.1:1/0",
        "redis://:s3cretpw#1234@127.0.0.1:1/0",
    ],
)
def test_I10_a_password_that_was_not_quoted_is_refused_and_not_told(
    url: str, open_it: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        open_it(url)
    error = refused.value
    said = f"{error} {error!r} {error.__cause__} {error.where} {caplog.text}"
    for part in ("1234", "s3cret", "cretpw"):
        assert part not in said


@pytest.mark.parametrize("open_it", [by_store, by_pipeline])
@pytest.mark.parametrize("option", ["decode_responses=true", "protocol=3", "retry_on_timeout=1"])
def test_options_that_change_what_answers_mean_are_refused(
    server: RedisServer, option: str, open_it: Open
) -> None:
    name = option.partition("=")[0]
    with pytest.raises(InvalidInputError, match=f"cannot set {name} here"):
        open_it(f"{server.url}?namespace={uuid.uuid4()}&{option}")


def test_options_of_the_connection_can_be_set(server: RedisServer) -> None:
    with open_progress(f"{server.url}?namespace={uuid.uuid4()}&socket_timeout=3") as store:
        write_number(store, 1)
        assert whole_number(store) == 1


# a server that lacks what another one had acknowledged


def fail_over(client: Any, standby: dict[bytes, bytes]) -> None:
    """Another server takes over, with what it had."""
    client.flushall()
    for key, value in standby.items():
        client.restore(key, 0, value)


def replicated(client: Any) -> dict[bytes, bytes]:
    return {key: client.dump(key) for key in client.keys("*")}


def test_nothing_is_written_after_a_session_that_a_failover_has_lost(
    first: SourceCheckpointStore, client: Any
) -> None:
    standby = replicated(client)
    write_number(first, 2)
    fail_over(client, standby)
    for write in (
        partial(write_number, first, 3),
        first.clear_checkpoints,
        partial(first.write_config_hash, 1),
    ):
        with pytest.raises(DamageError, match="lost a session that it had acknowledged"):
            write()
    assert whole_number(first) == 1


def test_a_first_session_that_a_failover_has_lost_is_missed(url: str, client: Any) -> None:
    client.flushall()
    with open_progress(url) as store:
        standby = replicated(client)
        write_number(store, 1)
        fail_over(client, standby)
        with pytest.raises(DamageError, match="lost a session that it had acknowledged"):
            write_number(store, 2)
        assert store.read_all_checkpoints() == {}


def test_a_store_that_is_opened_again_goes_on_from_what_the_server_has(
    first: SourceCheckpointStore, url: str, client: Any
) -> None:
    standby = replicated(client)
    write_number(first, 2)
    fail_over(client, standby)
    with open_progress(url) as again:
        assert whole_number(again) == 1
        write_number(again, 2)
        write_number(again, 3)
        assert whole_number(again) == 3
