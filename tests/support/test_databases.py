"""The databases that tests run: they answer, keep what they promise, and are gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.support import databases
from tests.support.databases import PostgresServer, RedisServer, postgres_server, redis_server
from tests.support.processes import ServerUnavailable
from tools.servers import POSTGRES

ROOT = Path(__file__).resolve().parents[2]

# Tells where its servers are and waits to be killed.
DYING_RUN = """
import time
from tests.support.databases import postgres_server, redis_server
with redis_server() as redis, postgres_server() as postgres:
    print(redis.url, postgres.dsn, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """One that a test may kill."""
    try:
        with redis_server() as server:
            yield server
    except ServerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(databases, "POSTGRES", replace(POSTGRES, beside=""))


def listens(url: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=5):
            return True
    except ConnectionRefusedError:
        return False


def test_redis_answers(redis: RedisServer) -> None:
    name = uuid.uuid4().hex
    with Redis.from_url(redis.url) as client:
        client.set(name, "1")
        assert client.get(name) == b"1"


def test_redis_keeps_its_data_and_its_port_over_a_restart(own_redis: RedisServer) -> None:
    url, pid = own_redis.url, own_redis.pid
    with Redis.from_url(url) as client:
        client.set("kept", "1")
    own_redis.restart()
    assert own_redis.url == url
    assert own_redis.pid != pid
    with Redis.from_url(url) as client:
        assert client.get("kept") == b"1"


def test_redis_keeps_every_answered_write_when_it_is_killed(own_redis: RedisServer) -> None:
    with Redis.from_url(own_redis.url) as client:
        for number in range(100):
            client.rpush("numbers", number)
    own_redis.kill()
    assert not listens(own_redis.url)
    own_redis.start()
    with Redis.from_url(own_redis.url) as client:
        assert client.lrange("numbers", 0, -1) == [str(n).encode() for n in range(100)]


def test_redis_without_a_log_forgets_at_a_restart(redis: RedisServer, tmp_path: Path) -> None:
    with redis_server(tmp_path, appendonly=False, extra=["--maxclients", "50"]) as server:
        with Redis.from_url(server.url) as client:
            client.set("kept", "1")
            assert client.config_get("maxclients") == {"maxclients": "50"}
        server.restart()
        with Redis.from_url(server.url) as client:
            assert client.get("kept") is None


def test_redis_over_a_given_folder_leaves_its_data_there(
    redis: RedisServer, tmp_path: Path
) -> None:
    for expected in (1, 2):
        with redis_server(tmp_path) as server, Redis.from_url(server.url) as client:
            assert client.incr("starts") == expected


def test_a_paused_redis_says_nothing_until_it_goes_on(own_redis: RedisServer) -> None:
    with (
        Redis.from_url(own_redis.url) as client,
        Redis.from_url(own_redis.url, socket_timeout=0.3, retry=None) as impatient,
    ):
        client.ping()
        own_redis.pause()
        with pytest.raises(RedisTimeoutError):
            impatient.ping()
        own_redis.resume()
        assert client.ping()


def test_a_paused_redis_is_stopped_in_good_order(own_redis: RedisServer) -> None:
    keeper = own_redis._keeper
    assert keeper is not None
    own_redis.pause()
    own_redis.stop()
    assert not listens(own_redis.url)
    assert keeper.returncode == 0  # it heard its signal; one that the keeper killed gives 247


def test_a_server_that_is_down_cannot_be_killed_or_paused(own_redis: RedisServer) -> None:
    own_redis.kill()
    for act in (own_redis.kill, own_redis.pause, own_redis.resume):
        with pytest.raises(RuntimeError, match="not running"):
            act()


def test_redis_that_does_not_start_tells_what_it_said(redis: RedisServer) -> None:
    with (
        pytest.raises(ServerUnavailable, match="no-such-option"),
        redis_server(extra=["--no-such-option", "1"]),
    ):
        pass


def test_postgres_gives_each_test_an_empty_database(postgres: PostgresServer) -> None:
    one, other = postgres.new_database(), postgres.new_database()
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
        connection.execute("INSERT INTO kept VALUES (1)")
    with psycopg.connect(one) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]
    with psycopg.connect(other) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)


def test_postgres_listens_on_loopback_alone(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)


def test_both_are_gone_after_the_context(redis: RedisServer, postgres: PostgresServer) -> None:
    with redis_server() as one, postgres_server() as other:
        # a client that nobody closed keeps neither of them up
        client, connection = Redis.from_url(one.url), psycopg.connect(other.dsn)
        client.ping()
        assert listens(one.url)
        assert listens(other.dsn)
    client.close()
    connection.close()
    assert not listens(one.url)
    assert not listens(other.dsn)


def test_both_die_with_a_test_run_that_is_killed(
    redis: RedisServer, postgres: PostgresServer
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DYING_RUN], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as run:
        assert run.stdout is not None
        urls = run.stdout.readline().split()
        assert all(listens(url) for url in urls)
        os.kill(run.pid, signal.SIGKILL)
    deadline = time.monotonic() + 280
    while any(listens(url) for url in urls):
        assert time.monotonic() < deadline, f"still there: {urls}"
        time.sleep(0.05)
    assert len(urls) == 2


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_database_is_told_with_the_package_that_has_it() -> None:
    with pytest.raises(ServerUnavailable, match=r"Redis is not installed .*redis-server"):
        redis_server().__enter__()
    with pytest.raises(ServerUnavailable, match=r"PostgreSQL is not installed .*postgresql"):
        postgres_server().__enter__()


def test_tests_that_want_a_missing_server_are_skipped_and_not_failed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text("def test_it(redis): raise AssertionError\n")
    options = "-c pyproject.toml --rootdir=. -p no:cacheprovider"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), str(tmp_path)],
        env=os.environ | {"PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 skipped" in done.stdout
    assert "UserWarning: Redis is NOT tested here: Redis is not installed" in done.stdout
    assert done.returncode == 0
