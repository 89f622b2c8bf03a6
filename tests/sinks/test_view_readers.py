"""Another process reads a view all the time, while its writer is killed again and again.

Every row of an epoch carries the epoch's number, so a reader that sees two numbers at once, or one
that goes back, or a source that lags behind the rows, has seen half an epoch.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from seamark.sinks import Committable
from tests.conftest import SEED
from tests.progress.support.children import _CONTEXT, PATIENCE, Child, running
from tests.sinks.support.view_children import read_epochs, write_epochs
from tests.sinks.support.views import World
from tests.support.databases import RedisServer

NEEDED = (
    "pandas",  # pyarrow loads it with the first array
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.types",
    "redis",
    "rocksdict",
    "seamark.progress.redis.client",
    "seamark.progress.rocksdb.ledger",
    "seamark.sinks.keyvalue.sink",
    "seamark.testing.conformance.sink_examples",
)

Kill = Callable[[Child], None]
SMALL = 1
"""Bytes from which a commit is handed to RocksDB as a file of its own: all of them are."""


@pytest.fixture(scope="module", autouse=True)
def _quick_children() -> None:
    """Have children forked from a process that has loaded what they need."""
    server: Any = forkserver._forkserver
    server._stop()  # one that other tests have started lacks half of it
    _CONTEXT.set_forkserver_preload(list(NEEDED))


@pytest.fixture
def chance() -> random.Random:
    return random.Random(os.environ[SEED])


@pytest.fixture(params=["rocksdb", "rocksdb-files", "redis"])
def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> Attacked:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        return Attacked(f"{server.url}?namespace=view-{uuid.uuid4()}", tmp_path / "staging")
    large = SMALL if request.param == "rocksdb-files" else 0
    return Attacked(f"rocksdb://{tmp_path}/view", None, large)


class Attacked:
    """A view whose writers are killed one after the other, and what they have decided."""

    def __init__(self, url: str, staging: Path | None, large: int = 0) -> None:
        self.world = World(url, staging)
        self.decided: Committable | None = None
        self.large = large
        self.kills = 0
        self.world.handle()
        self.world.close()

    def next_writer(self, kill: Kill, die_at: int = 0) -> int:
        """Run a writer until it is dead; how many epochs it has decided."""
        staging = str(self.world.given) if self.world.given else None
        arguments = (self.world.url, staging, self.large, die_at)
        with running(write_epochs, *arguments) as writer:
            writer.tell((self.decided, f"p{self.kills}"))
            kill(writer)
            said = writer.hear_all()
        self.kills += 1
        wrong = [each for each in said if isinstance(each, str)]
        assert not wrong, wrong
        self.decided = said[-1] if said else self.decided
        return len(said)

    def finish(self) -> int:
        """What the next start does; the epoch that the view shows in the end."""
        sink = self.world.handle()
        if self.decided is not None:
            sink.commit(self.decided)
        for attempt in sink.leftovers():
            sink.abort(attempt)
        staged = list((self.world.staging / "staging").iterdir())
        assert staged == [], "nothing is left of any attempt"
        self.world.close()
        assert self.world.epoch() == (self.decided["epoch"] if self.decided else 0)
        return self.world.epoch()


@pytest.mark.slow
def test_I2_a_reader_sees_whole_epochs_while_the_writer_is_killed_at_any_moment(
    attacked: Attacked, chance: random.Random
) -> None:
    def after_a_while(writer: Child) -> None:
        writer.reports.poll(PATIENCE)  # its first epoch is decided
        time.sleep(chance.random() * 0.1)
        writer.kill()

    with running(read_epochs, attacked.world.url) as reader:
        assert reader.hear() == "ready"
        for _ in range(12):
            attacked.next_writer(after_a_while)
        shown = attacked.finish()
        reader.tell("stop")
        saw = reader.hear()
    assert not isinstance(saw, str), saw
    looks, epochs = saw
    print(f"{shown} epochs, {looks} looks that saw {epochs} of them")  # noqa: T201 - by -rP
    assert shown >= 12  # each writer is killed after its first epoch is decided
    assert looks > epochs > 3


@pytest.mark.slow
def test_I2_killed_between_any_two_lines_the_next_one_finds_all_of_an_epoch_or_nothing(
    attacked: Attacked, chance: random.Random
) -> None:
    def it_dies_by_itself(_: Child) -> None:
        pass

    last, kills = 4000, 25
    with running(read_epochs, attacked.world.url) as reader:
        assert reader.hear() == "ready"
        for number in range(kills):
            line = int((number + chance.random()) * last / kills) + 1
            attacked.next_writer(it_dies_by_itself, die_at=line)
        attacked.finish()
        reader.tell("stop")
        saw = reader.hear()
    assert not isinstance(saw, str), saw
    assert attacked.decided is not None
    assert attacked.decided["epoch"] > 10
