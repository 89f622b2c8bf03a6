"""A connection to Redis that breaks in a commit: it happened once or not at all, and that is told.

A server that is restarted or gone, and two writers, one of which slept through the other's coming.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from redis import Redis

from seamark.errors import (
    DamageError,
    FencedError,
    OutcomeUnknownError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.progress import SourceCheckpointStore, open_progress
from seamark.progress.redis import ledger as backend
from tests.progress.support.children import SPACES, hold, running, whole_number, write_number
from tests.progress.support.proxy import Fault, Proxy, before
from tests.support.databases import RedisServer, redis_server

APPLIED = Fault.LOSE_ANSWER
NOT_APPLIED = [Fault.LOSE_REQUEST, Fault.HALVE_REQUEST, Fault.DELAY_REQUEST]


@pytest.fixture
def proxy(redis: RedisServer) -> Iterator[Proxy]:
    with before(redis.port) as found:
        yield found


@pytest.fixture
def store(proxy: Proxy, namespace: str) -> Iterator[SourceCheckpointStore]:
    """A store behind the proxy, with one session in it."""
    with open_progress(f"redis://127.0.0.1:{proxy.port}/0", namespace=namespace) as opened:
        write_number(opened, 1)
        yield opened


def add(store: SourceCheckpointStore) -> None:
    """A session that must not be applied twice."""
    with store.session() as s:
        number = int(s.get("data", b"count") or b"0") + 1
        s.put("data", b"count", b"%d" % number)
        s.stage_checkpoint("counter", number)


def counted(store: SourceCheckpointStore) -> int:
    found = store.read_checkpoint("counter")
    number = found.sequence if found else 0
    assert store.get("data", b"count") == (b"%d" % number if found else None)
    return number


@pytest.mark.parametrize("fault", Fault)
def test_a_commit_whose_connection_breaks_is_applied_once(
    store: SourceCheckpointStore, proxy: Proxy, url: str, fault: Fault
) -> None:
    for number in range(1, 4):
        proxy.arm(fault)
        add(store)
        with open_progress(url, read_only=True) as reader:
            assert counted(reader) == number
    assert proxy.faults == 3


def test_a_commit_that_reaches_the_server_late_is_not_applied(
    store: SourceCheckpointStore, proxy: Proxy, url: str
) -> None:
    proxy.arm(Fault.DELAY_REQUEST)
    add(store)
    add(store)
    answer = proxy.deliver()
    assert answer.endswith(b"*-1\r\n"), "EXEC finds that what it watched has changed"
    assert counted(store) == 2


@pytest.mark.parametrize("fault", Fault)
def test_a_standalone_commit_whose_connection_breaks_is_applied(
    store: SourceCheckpointStore, proxy: Proxy, url: str, fault: Fault
) -> None:
    proxy.arm(fault)
    store.write_config_hash(7)
    proxy.arm(fault)
    store.clear_checkpoints()
    assert proxy.faults == 2
    with open_progress(url, read_only=True) as reader:
        assert (reader.read_config_hash(), reader.read_all_checkpoints()) == (None, {})


@pytest.mark.parametrize("fault", NOT_APPLIED)
def test_a_writer_fenced_while_its_commit_was_lost_has_written_nothing(
    store: SourceCheckpointStore, proxy: Proxy, url: str, fault: Fault
) -> None:
    proxy.arm(fault, meanwhile=partial(_take_over, url, write=0))
    with pytest.raises(FencedError, match="another writer"):
        write_number(store, 2)
    with open_progress(url, read_only=True) as reader:
        assert whole_number(reader) == 1


def test_a_commit_that_got_through_before_the_other_writer_came_is_a_success(
    store: SourceCheckpointStore, proxy: Proxy, url: str
) -> None:
    proxy.arm(APPLIED, meanwhile=partial(_take_over, url, write=0))
    write_number(store, 2)
    with open_progress(url, read_only=True) as reader:
        assert whole_number(reader) == 2


@pytest.mark.parametrize("fault", [*Fault])
def test_what_nobody_can_know_is_not_said(
    store: SourceCheckpointStore, proxy: Proxy, url: str, fault: Fault
) -> None:
    """The other writer's own commit has covered the traces of ours."""
    proxy.arm(fault, meanwhile=partial(_take_over, url, write=5))
    with pytest.raises(OutcomeUnknownError) as caught:
        add(store)
    assert "either" in str(caught.value)
    with pytest.raises(FencedError):
        add(store)


def _take_over(url: str, *, write: int) -> None:
    with open_progress(url) as other:
        if write:
            with other.session() as s:
                s.put("other", b"key", b"%d" % write)


# a server that goes and comes


def test_a_server_restarted_in_a_session_commits_it_once(redis: RedisServer, url: str) -> None:
    with open_progress(url) as store:
        for end in (redis.restart, partial(_killed, redis)):
            session = store.begin()
            number = int(session.get("data", b"count") or b"0") + 1
            session.put("data", b"count", b"%d" % number)
            session.stage_checkpoint("counter", number)
            end()
            store.commit()
            assert counted(store) == number
    with open_progress(url) as store:
        assert counted(store) == 2


def _killed(server: RedisServer) -> None:
    server.kill()
    server.start()


def test_a_server_that_is_gone_is_told(
    redis: RedisServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_DELAYS", (0.0, 0.01))
    with open_progress(url) as store:
        write_number(store, 1)
        store.begin().put(SPACES[0], b"key", b"value")
        store.stage_checkpoint("source", 2)
        redis.kill()
        try:
            with pytest.raises(OutcomeUnknownError):
                store.commit()
            for use in (store.read_all_checkpoints, partial(write_number, store, 2)):
                with pytest.raises(StoreUnavailableError):
                    use()
            with pytest.raises(StoreUnavailableError):
                open_progress(url)
        finally:
            redis.start()
        assert not store.in_session
        assert whole_number(store) == 1
        write_number(store, 2)
        assert whole_number(store) == 2


def test_a_server_that_came_back_empty_is_told() -> None:
    with redis_server(appendonly=False) as server:
        with open_progress(server.url, namespace="n") as store:
            write_number(store, 1)
            _killed(server)
            with pytest.raises(DamageError, match="no longer knows"):
                write_number(store, 2)
        with open_progress(server.url, namespace="n") as store:
            assert whole_number(store) == 0


# two writers


def test_the_first_writer_is_told_at_its_next_commit(url: str) -> None:
    first = open_progress(url)
    write_number(first, 1)
    first.begin().put("data", b"staged", b"by the first")
    first.stage_checkpoint("source", 2)
    with open_progress(url) as second:
        with pytest.raises(FencedError, match="another writer"):
            first.commit()
        for write in (
            partial(write_number, first, 2),
            first.clear_checkpoints,
            first.forget_config_hash,
            partial(first.write_config_hash, 1),
        ):
            with pytest.raises(FencedError):
                write()
        assert whole_number(second) == whole_number(first) == 1
        assert [*second.items("data")] == []
        write_number(second, 2)
    first.close()


def test_a_writer_that_slept_is_told_and_has_written_nothing(url: str) -> None:
    with running(hold, url) as child:
        assert child.hear() == "open"
        child.tell(("write", 1))
        assert child.hear() == "done"
        child.tell("stage")
        assert child.hear() == "done"
        child.send_signal(signal.SIGSTOP)
        with open_progress(url) as second:
            write_number(second, 2)
            child.send_signal(signal.SIGCONT)
            child.tell("commit")
            assert isinstance(child.hear(), FencedError)
            child.tell(("write", 3))
            assert isinstance(child.hear(), FencedError)
            assert whole_number(second) == 2
            assert [*second.items("data")] == []


def test_writers_that_take_over_in_turns_lose_nothing(url: str) -> None:
    stores = [open_progress(url)]
    for number in range(1, 6):
        stores.append(open_progress(url))
        write_number(stores[-1], number)
        for fenced in stores[:-1]:
            with pytest.raises(SeamarkError):
                write_number(fenced, number + 1)
    assert whole_number(stores[-1]) == 5
    for store in stores:
        store.close()


def test_a_reader_takes_nothing_over_and_writes_nothing(
    redis: RedisServer, url: str, namespace: str
) -> None:
    with open_progress(url) as store, Redis.from_url(redis.url) as client:
        write_number(store, 1)
        written = _dump(client, namespace)
        with open_progress(url, read_only=True) as reader:
            assert whole_number(reader) == 1
        assert _dump(client, namespace) == written
        write_number(store, 2)


def _dump(client: Any, namespace: str) -> dict[bytes, Any]:
    keys = client.keys(f"seamark:{{{namespace}}}:*")
    return {key: client.hgetall(key) for key in keys}
