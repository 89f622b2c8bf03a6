"""Random histories of sessions against a plain model, on every backend."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from seamark.errors import RefusedError
from seamark.progress import SourceCheckpointStore, open_progress
from seamark.testing import OpenStore
from tests.progress.support.model import (
    SPACES,
    Model,
    Step,
    keys,
    numbers,
    queries,
    sources,
    spaces,
    steps,
)
from tests.support.databases import RedisServer

Opened = Callable[[], tuple[OpenStore, Callable[[], None]]]
"""Gives what opens a new, empty store, and what removes it."""
seldom = st.integers(0, 3).map(lambda number: number == 0)


class Histories(RuleBasedStateMachine):
    """A store and its model, side by side."""

    opened: OpenStore
    remove: Callable[[], None]

    def __init__(self) -> None:
        super().__init__()
        self.store: SourceCheckpointStore = self.opened()
        self.reader: SourceCheckpointStore = self.opened(read_only=True)
        self.committed = Model()
        self.levels = 0
        self.is_doomed = False
        self.staged: list[Step] = []
        self.session: Any = None

    def teardown(self) -> None:
        self.reader.close()
        self.store.close()
        self.remove()

    def _begin(self) -> None:
        self.session = self.store.begin()
        self.levels += 1

    def _take(self, step: Step) -> None:
        """Do it in the session and in the model; a session that is doomed refuses."""
        refusal = "rolled back" if self.is_doomed else None
        if not refusal and step.goes_back(self.committed.after(self.staged)):
            refusal = "go back"
        if refusal:
            with pytest.raises(RefusedError, match=refusal):
                step.take(self.session)
        else:
            step.take(self.session)
            self.staged.append(step)

    def _over(self) -> None:
        self.levels, self.is_doomed, self.staged = 0, False, []

    # sessions

    @rule(steps=steps)
    def a_whole_session_or_level(self, steps: list[Step]) -> None:
        self._begin()
        for step in steps:
            self._take(step)
        self.commit()

    @precondition(lambda self: self.levels < 4)
    @rule(steps=steps)
    def the_beginning_of_a_level(self, steps: list[Step]) -> None:
        self._begin()
        for step in steps:
            self._take(step)

    @precondition(lambda self: self.levels)
    @rule(steps=steps)
    def more_of_a_session(self, steps: list[Step]) -> None:
        for step in steps:
            self._take(step)

    @rule()
    def commit(self) -> None:
        if self.levels == 0 or (self.levels == 1 and self.is_doomed):
            with pytest.raises(RefusedError):
                self.store.commit()
            self._over()
            return
        self.store.commit()
        self.levels -= 1
        if self.levels == 0:
            self.committed = self.committed.after(self.staged)
            self._over()

    @rule()
    def commit_all_levels(self) -> None:
        while self.levels:
            self.commit()

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.levels, self.is_doomed = max(self.levels - 1, 0), self.levels > 1
        if self.levels == 0:
            self._over()

    @precondition(lambda self: self.levels)
    @rule(source=sources, number=numbers)
    def an_allowed_rewind(self, source: str, number: int) -> None:
        if not self.is_doomed:
            self.store.stage_checkpoint(source, number, allow_rewind=True)
            self.staged.append(Step("stage_checkpoint", (source, number, None)))

    # what stands for itself

    @rule(number=numbers)
    def write_config_hash(self, number: int) -> None:
        self.store.write_config_hash(number)
        self.committed.config_hash = number

    @rule(really=seldom)
    def forget_config_hash(self, really: bool) -> None:
        if really:
            self.store.forget_config_hash()
            self.committed.config_hash = None

    @rule(really=seldom)
    def clear_checkpoints(self, really: bool) -> None:
        if self.levels:
            with pytest.raises(RefusedError, match="part of a session"):
                self.store.clear_checkpoints()
        elif really:
            self.store.clear_checkpoints()
            self.committed.forget_checkpoints()

    @rule(really=seldom)
    def reopen(self, really: bool) -> None:
        if really:
            self.store.close()
            self.store = self.opened()
            self._over()

    # what is seen

    @invariant()
    def reads_are_what_is_committed(self) -> None:
        for handle in (self.store, self.reader):
            assert handle.read_all_checkpoints() == self.committed.checkpoints()
            assert handle.read_config_hash() == self.committed.config_hash
            for space in SPACES:
                assert [*handle.items(space)] == sorted(self.committed.data[space].items())
        assert self.store.in_session == bool(self.levels)

    @rule(source=sources, query=queries, space=spaces, key=keys)
    def single_reads_agree(self, source: str, query: str, space: str, key: bytes) -> None:
        for handle in (self.store, self.reader):
            assert handle.read_checkpoint(source) == self.committed.checkpoints().get(source)
            assert handle.read_result_sequence(query) == self.committed.results.get(query)
            assert handle.get(space, key) == self.committed.data[space].get(key)
        if self.levels and not self.is_doomed:
            view = self.committed.after(self.staged)
            assert self.session.read_checkpoint(source) == view.checkpoints().get(source)
            assert self.session.read_result_sequence(query) == view.results.get(query)
            assert self.session.get(space, key) == view.data[space].get(key)


def run(opened: Opened, examples: int) -> None:
    class OnThisBackend(Histories):
        def __init__(self) -> None:
            self.opened, self.remove = opened()
            super().__init__()

    run_state_machine_as_test(
        seed(int(os.environ["SEAMARK_SEED"]))(OnThisBackend),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def in_memory() -> tuple[OpenStore, Callable[[], None]]:
    url = f"memory://{uuid.uuid4()}"
    keeps = open_progress(url)
    return partial(open_progress, url), keeps.close


def in_rocksdb() -> tuple[OpenStore, Callable[[], None]]:
    folder = tempfile.mkdtemp(prefix="progress-")
    return partial(open_progress, f"rocksdb://{folder}"), partial(shutil.rmtree, folder)


@pytest.fixture
def in_redis(redis: RedisServer) -> Opened:
    def opened() -> tuple[OpenStore, Callable[[], None]]:
        namespace = f"model-{uuid.uuid4()}"
        return partial(open_progress, redis.url, namespace=namespace), lambda: None

    return opened


def test_memory_follows_the_model() -> None:
    run(in_memory, 100)


@pytest.mark.slow
def test_rocksdb_follows_the_model() -> None:
    run(in_rocksdb, 15)


@pytest.mark.slow
def test_redis_follows_the_model(in_redis: Opened) -> None:
    run(in_redis, 40)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_all_follow_the_model_for_long(in_redis: Opened) -> None:
    for opened in (in_memory, in_rocksdb, in_redis):
        run(opened, 1000)
