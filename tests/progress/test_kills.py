"""kill -9 at any moment of a session: the next process finds all of it, or nothing."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.progress.support.children import Child, run_large_sessions, run_sessions, running
from tests.support.databases import RedisServer

Work = Callable[..., None]


@pytest.fixture(params=["rocksdb", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "rocksdb":
        return f"rocksdb://{tmp_path}/progress"
    server: RedisServer = request.getfixturevalue("redis")
    return f"{server.url}?namespace=kills-{uuid.uuid4()}"


@pytest.fixture
def chance() -> random.Random:
    return random.Random(int(os.environ["SEAMARK_SEED"]))


class History:
    """What processes one after the other have said about one store."""

    def __init__(self, url: str, work: Work = run_sessions) -> None:
        self.url = url
        self.work = work
        self.kills = 0
        self.committed = 0
        """The last session whose commit a process was told of."""
        self.heard: list[int] = []
        """What the running process has said before it was killed."""

    def next_process(self, kill: Callable[[Child], None], die_at: int = 0) -> None:
        """Run a process until it is killed; it first looks at what the one before has left."""
        with running(self.work, self.url, die_at) as child:
            self.heard = []
            kill(child)
            said = self.heard + child.hear_all()
        self.kills += 1
        if said:
            self._check(said)

    def _check(self, said: list[int]) -> None:
        # one more than was told of: it was killed between the commit and its report
        assert said[0] in (self.committed, self.committed + 1), said[0]
        assert said == [*range(said[0], said[0] + len(said))]
        self.committed = said[-1]

    def end(self) -> None:
        """A last process has to find everything whole."""
        with running(self.work, self.url) as child:
            self._check([child.hear()])


def let_it_die(_: Child) -> None:
    """It does that itself."""


def lines_to_the_third_commit(url: str, work: Work) -> int:
    """How many lines of ours a process runs until it has committed three sessions, about."""
    low, high = 1, 20_000
    while high - low > 50:
        middle = (low + high) // 2
        with running(work, url, middle) as child:
            reached = len(child.hear_all()) >= 4
        low, high = (low, middle) if reached else (middle, high)
    return high


def kill_at_lines(url: str, kills: int, chance: random.Random, work: Work = run_sessions) -> None:
    last = lines_to_the_third_commit(f"{url}-probe", work)
    history = History(url, work)
    for number in range(kills):
        # spread over all lines, at another place inside its stretch each time
        stretch = last / kills
        history.next_process(let_it_die, int(number * stretch + chance.random() * stretch) + 1)
    history.end()
    assert history.committed > kills // 10


def kill_at_moments(url: str, kills: int, chance: random.Random) -> None:
    history = History(url)

    def after_some_sessions(child: Child) -> None:
        # however slow the machine is: some sessions, and then a moment inside another one
        heard = [child.hear() for _ in range(chance.randrange(1, 4))]
        time.sleep(chance.random() * 0.02)
        child.kill()
        history.heard = heard

    for _ in range(kills):
        history.next_process(after_some_sessions)
    history.end()
    assert history.committed >= kills // 2


@pytest.mark.slow
def test_killed_between_any_two_steps(url: str, chance: random.Random) -> None:
    kill_at_lines(url, 40, chance)


def test_killed_at_any_moment(url: str, chance: random.Random) -> None:
    kill_at_moments(url, 25, chance)


@pytest.mark.slow
def test_killed_while_rocksdb_takes_over_a_file(tmp_path: Path, chance: random.Random) -> None:
    kill_at_lines(f"rocksdb://{tmp_path}/progress", 25, chance, run_large_sessions)


def test_a_redis_that_is_killed_meanwhile_keeps_what_it_has_acknowledged(
    redis: RedisServer, chance: random.Random
) -> None:
    history = History(f"{redis.url}?namespace=kills-{uuid.uuid4()}")

    def after_the_server(child: Child) -> None:
        history.heard = [child.hear(), child.hear()]  # what it found, and its first session
        time.sleep(chance.random() * 0.02)
        redis.kill()
        redis.start()
        time.sleep(chance.random() * 0.2)  # some find out what became of their session, some die
        child.kill()

    for _ in range(8):
        history.next_process(after_the_server)
    history.end()
    assert history.committed >= 8


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_killed_hundreds_of_times(url: str, chance: random.Random) -> None:
    kill_at_lines(f"{url}-lines", 500, chance)
    kill_at_moments(f"{url}-moments", 500, chance)
