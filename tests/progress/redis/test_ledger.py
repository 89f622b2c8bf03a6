"""Redis for real: its keys, bad data in them, and servers that can less."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from redis import Redis

from seamark import limits
from seamark.errors import DamageError, InvalidInputError, StoreUnavailableError
from seamark.progress import MAX_POSITION_BYTES, SourceCheckpointStore, open_progress
from seamark.progress.ledger import SessionOvertaken
from seamark.progress.urls import open_ledger
from tests.progress.support.children import SPACES, whole_number, write_number
from tests.support.databases import RedisServer, redis_server


@pytest.fixture
def client(redis: RedisServer) -> Iterator[Any]:
    with Redis.from_url(redis.url) as connected:
        yield connected


@pytest.fixture
def meta(namespace: str) -> str:
    return f"seamark:{{{namespace}}}:meta"


@pytest.fixture
def store(url: str) -> Iterator[SourceCheckpointStore]:
    with open_progress(url) as opened:
        yield opened


def test_the_keys_are_where_the_documentation_says(
    store: SourceCheckpointStore, client: Any, namespace: str
) -> None:
    store.write_config_hash(2**64 - 1)
    with store.session() as s:
        s.put("totals", b"alice", b"\x00\xff")
        s.stage_checkpoint("orders", 2**63, b"\x00position")
        s.stage_checkpoint("quiet", 0)
    prefix = f"seamark:{{{namespace}}}:"
    assert client.hgetall(f"{prefix}data:totals") == {b"alice": b"\x00\xff"}
    assert client.hgetall(f"{prefix}positions") == {b"orders": b"\x00position"}
    meta = client.hgetall(f"{prefix}meta")
    assert meta[b"sequence:orders"] == b"9223372036854775808"
    assert meta[b"sequence:quiet"] == b"0"
    assert meta[b"config_hash"] == b"18446744073709551615"
    assert meta[b"generation"] == b"1"


# bad data


def test_a_position_that_is_larger_than_any_that_is_kept_is_damage(
    store: SourceCheckpointStore, client: Any, namespace: str
) -> None:
    with store.session() as s:
        s.stage_checkpoint("orders", 1, b"here")
    client.hset(f"seamark:{{{namespace}}}:positions", "orders", bytes(MAX_POSITION_BYTES + 1))
    for read in (store.read_all_checkpoints, partial(store.read_checkpoint, "orders")):
        with pytest.raises(DamageError, match="has 65537 bytes, and at most 65536"):
            read()


def test_more_sources_than_any_store_has_are_damage(
    store: SourceCheckpointStore, client: Any, meta: str
) -> None:
    client.hset(meta, mapping={f"sequence:{n}": 1 for n in range(limits.MOST_SOURCES + 1)})
    for read in (store.read_all_checkpoints, partial(_stage, store)):
        with pytest.raises(DamageError, match="more than 10000 sources"):
            read()


def test_a_source_id_that_is_longer_than_any_that_is_kept_is_damage(
    store: SourceCheckpointStore, client: Any, meta: str
) -> None:
    client.hset(meta, f"sequence:{'a' * (limits.LONGEST_SOURCE + 1)}", 1)
    for read in (store.read_all_checkpoints, partial(_stage, store)):
        with pytest.raises(DamageError, match=r"the id of source 'a{200}'… has 10001 bytes"):
            read()


@pytest.mark.parametrize(
    "text", ["", "seven", "-1", "+1", " 1", "1_0", "1.0", str(2**64), "9" * 30, "\u0663"]
)
def test_what_is_no_number_names_its_key(
    store: SourceCheckpointStore, client: Any, meta: str, text: str
) -> None:
    client.hset(meta, mapping={"sequence:orders": text, "config_hash": text})
    with pytest.raises(DamageError, match=f"'config_hash' of the key '{meta}'"):
        store.read_config_hash()
    for read in (
        store.read_all_checkpoints,
        partial(store.read_checkpoint, "orders"),
        partial(_stage, store),
    ):
        with pytest.raises(DamageError, match=f"'sequence:orders' of the key '{meta}'"):
            read()


def _stage(store: SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage_checkpoint("orders", 1)


def test_a_generation_that_is_no_number_names_its_key(
    store: SourceCheckpointStore, client: Any, meta: str, url: str
) -> None:
    client.hset(meta, "generation", "many")
    with pytest.raises(DamageError, match=f"'generation' of the key '{meta}'"):
        _stage(store)
    with pytest.raises(DamageError, match=f"'generation' of the key '{meta}'"):
        open_progress(url)


def test_a_source_id_that_is_no_text_is_told(
    store: SourceCheckpointStore, client: Any, meta: str
) -> None:
    client.hset(meta, b"sequence:\xff\xfe", 1)
    with pytest.raises(DamageError, match=r"xff.*of the key") as caught:
        store.read_all_checkpoints()
    assert meta in str(caught.value)


Write = Callable[[Any, str], None]


@pytest.mark.parametrize(
    "write",
    [
        lambda client, key: client.set(key, "text"),
        lambda client, key: client.rpush(key, "list"),
        lambda client, key: client.sadd(key, "set"),
    ],
    ids=["string", "list", "set"],
)
@pytest.mark.parametrize("key", ["meta", "positions", "data:totals"])
def test_a_key_of_another_type_is_named_and_nothing_is_written(
    redis: RedisServer, namespace: str, client: Any, key: str, write: Write
) -> None:
    full = f"seamark:{{{namespace}}}:{key}"
    write(client, full)
    uses: dict[str, list[Callable[[SourceCheckpointStore], object]]] = {
        "meta": [],  # seen when the store is opened
        "positions": [
            lambda store: store.read_all_checkpoints(),
            lambda store: store.read_checkpoint("orders"),
            _commit_all,
        ],
        "data:totals": [
            lambda store: store.get("totals", b"key"),
            lambda store: [*store.items("totals")],
            _read_in_a_session,
            _commit_all,
        ],
    }
    opened = partial(open_progress, redis.url, namespace=namespace)
    if key == "meta":
        with pytest.raises(DamageError, match=full.replace("{", r"\{")):
            opened()
        return
    with opened() as store:
        for use in uses[key]:
            with pytest.raises(DamageError) as caught:
                use(store)
            assert full in str(caught.value)
    assert client.hget(f"seamark:{{{namespace}}}:meta", "sequence:orders") is None
    assert client.exists(f"seamark:{{{namespace}}}:data:other") == 0


def _read_in_a_session(store: SourceCheckpointStore) -> None:
    with store.session() as s:
        s.get("totals", b"key")


def _commit_all(store: SourceCheckpointStore) -> None:
    with store.session() as s:
        s.put("other", b"key", b"value")
        s.put("totals", b"key", b"value")
        s.stage_checkpoint("orders", 1, b"position")


# addresses


@pytest.mark.parametrize("wrong", ["", "{a}", "a}b", "a\x00b"])
def test_a_namespace_that_would_move_keys_elsewhere_is_refused(
    redis: RedisServer, wrong: str
) -> None:
    with pytest.raises(InvalidInputError, match="namespace"):
        open_progress(redis.url, namespace=wrong)


def test_a_namespace_is_needed(redis: RedisServer) -> None:
    with pytest.raises(InvalidInputError, match=r"\?namespace="):
        open_progress(redis.url)


def test_namespaces_do_not_mix(redis: RedisServer, namespace: str) -> None:
    names = [namespace, f"{namespace}:data", f"{namespace} *"]
    stores = [open_progress(redis.url, namespace=name) for name in names]
    for number, store in enumerate(stores, 1):
        write_number(store, number)
    assert [whole_number(store) for store in stores] == [1, 2, 3]
    for store in stores:
        store.close()


def test_a_password_is_not_shown(redis: RedisServer) -> None:
    secret = f"redis://user:hunter2@127.0.0.1:{redis.port}/0?namespace=n"
    with pytest.raises(StoreUnavailableError) as caught:
        open_progress(secret)
    assert "hunter2" not in str(caught.value)
    assert "password" in str(caught.value)


def test_a_handle_that_is_dropped_leaves_no_connection_behind(
    url: str, client: Any, namespace: str
) -> None:
    before = len(client.client_list())
    for read_only in (False, True):
        store = open_progress(url, read_only=read_only)
        if not read_only:
            write_number(store, 1)
            store.begin().stage_checkpoint("source", 2)
        del store
    gc.collect()  # a warning about a socket would fail the test
    for _ in range(100):
        if len(client.client_list()) <= before:
            return
        time.sleep(0.02)
    raise AssertionError(f"{len(client.client_list()) - before} connections are left")


def test_writers_that_claim_nothing_overtake_each_other(url: str) -> None:
    first, second = (
        SourceCheckpointStore(open_ledger(url, claim=False)),
        SourceCheckpointStore(open_ledger(url, claim=False)),
    )
    with first, second:
        first.begin().stage_checkpoint("source", 1)
        write_number(second, 1)
        with pytest.raises(SessionOvertaken):
            first.commit()
        assert whole_number(first) == 1
        write_number(first, 2)
        write_number(second, 3)
        assert whole_number(first) == 3


# other servers


WITHOUT = ["EVAL", "EVALSHA", "SCRIPT", "FCALL", "FUNCTION", "CONFIG", "KEYS", "SCAN"]


def test_a_server_without_scripts_is_enough() -> None:
    flags = [part for name in WITHOUT for part in ("--rename-command", name, "")]
    with redis_server(extra=flags) as server:
        with Redis.from_url(server.url) as client:
            for name in ("EVAL", "CONFIG"):
                assert _refuses(client, name)
        _use(server.url)


def test_a_cluster_of_one_node_is_enough() -> None:
    with redis_server(extra=["--cluster-enabled", "yes"]) as server:
        with Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            for _ in range(100):
                if client.cluster("info")["cluster_state"] == "ok":
                    break
                time.sleep(0.1)
        _use(server.url)


def _refuses(client: Any, command: str) -> bool:
    try:
        client.execute_command(command, "return 1", "0")
    except Exception as error:  # noqa: BLE001 - by its words
        return "unknown command" in str(error)
    return False


def _use(url: str) -> None:
    """Sessions, a reader, a second writer, and clearing."""
    with open_progress(url, namespace="n") as first:
        write_number(first, 1)
        with open_progress(url, namespace="n", read_only=True) as reader:
            assert whole_number(reader) == 1
        with open_progress(url, namespace="n") as second:
            write_number(second, 2)
            second.write_config_hash(1)
            second.clear_checkpoints()
            assert second.read_all_checkpoints() == {}
            assert dict(second.items(SPACES[2])) == {b"2": b"2"}
