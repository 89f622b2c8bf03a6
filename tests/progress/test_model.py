"""Random histories of sessions against a plain model, on every backend."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from seamark.errors import RefusedError
from seamark.progress import Session, SourceCheckpoint, SourceCheckpointStore, open_progress
from seamark.testing import OpenStore
from tests.databases import RedisServer

SOURCES, SPACES = ("s", "s2", "{odd}\n"), ("a", "ab")
sources, spaces = st.sampled_from(SOURCES), st.sampled_from(SPACES)
keys = st.sampled_from([b"", b"a", b"a\x00", b"\xff"])
values = st.binary(max_size=3)
numbers = st.integers(0, 4) | st.sampled_from([2**63, 2**64 - 1])


@dataclass
class Model:
    """All that is committed, or would be."""

    sequences: dict[str, int] = field(default_factory=dict)
    positions: dict[str, bytes] = field(default_factory=dict)
    config_hash: int | None = None
    data: dict[str, dict[bytes, bytes]] = field(
        default_factory=lambda: {space: {} for space in SPACES}
    )

    def checkpoints(self) -> dict[str, SourceCheckpoint]:
        return {s: SourceCheckpoint(n, self.positions.get(s)) for s, n in self.sequences.items()}


Step = Callable[[Model], object]


class Histories(RuleBasedStateMachine):
    """A store and its model, side by side."""

    opened: OpenStore
    forget: Callable[[], None]

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
        self.forget()

    @property
    def view(self) -> Model:
        """What would be committed now."""
        found = deepcopy(self.committed)
        for step in self.staged:
            step(found)
        return found

    def stage(self, act: Callable[[Session], object], step: Step) -> None:
        """Do it in the session and in the model; a session that is doomed refuses."""
        if self.is_doomed:
            with pytest.raises(RefusedError, match="rolled back"):
                act(self.session)
        else:
            act(self.session)
            self.staged.append(step)

    # sessions

    @precondition(lambda self: self.levels < 4)
    @rule()
    def begin(self) -> None:
        self.session = self.store.begin()
        self.levels += 1

    @rule()
    def commit(self) -> None:
        if self.levels == 0 or (self.levels == 1 and self.is_doomed):
            with pytest.raises(RefusedError):
                self.store.commit()
            self._over()
        else:
            self.store.commit()
            if self.levels == 1:
                self.committed = self.view
                self._over()
            else:
                self.levels -= 1

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.levels, self.is_doomed = max(self.levels - 1, 0), self.levels > 1
        if self.levels == 0:
            self._over()

    def _over(self) -> None:
        self.levels, self.is_doomed, self.staged = 0, False, []

    # what is staged

    @precondition(lambda self: self.levels)
    @rule(source=sources, number=numbers, position=st.none() | values, rewind=st.booleans())
    def stage_checkpoint(
        self, source: str, number: int, position: bytes | None, rewind: bool
    ) -> None:
        act = partial(self.store.stage_checkpoint, source, number, position, allow_rewind=rewind)
        goes_back = number < self.view.sequences.get(source, 0) and not rewind
        if goes_back and not self.is_doomed:
            with pytest.raises(RefusedError, match="go back"):
                act()
            return

        def step(model: Model) -> None:
            model.sequences[source] = number
            if position is not None:
                model.positions[source] = position

        self.stage(lambda _: act(), step)

    @precondition(lambda self: self.levels)
    @rule(source=sources)
    def clear_position(self, source: str) -> None:
        self.stage(lambda s: s.clear_position(source), lambda m: m.positions.pop(source, None))

    @precondition(lambda self: self.levels)
    @rule(space=spaces, pairs=st.lists(st.tuples(keys, values), max_size=3), many=st.booleans())
    def put(self, space: str, pairs: list[tuple[bytes, bytes]], many: bool) -> None:
        for some in [pairs] if many else [[pair] for pair in pairs]:
            self.stage(
                partial(Session.put_many, space=space, pairs=some)
                if many
                else partial(Session.put, space=space, key=some[0][0], value=some[0][1]),
                lambda model, some=some: model.data[space].update(some),  # type: ignore[misc]
            )

    @precondition(lambda self: self.levels)
    @rule(space=spaces, key=keys)
    def delete(self, space: str, key: bytes) -> None:
        self.stage(lambda s: s.delete(space, key), lambda model: model.data[space].pop(key, None))

    @precondition(lambda self: self.levels)
    @rule(space=spaces)
    def clear(self, space: str) -> None:
        self.stage(lambda s: s.clear(space), lambda model: model.data[space].clear())

    @precondition(lambda self: self.levels)
    @rule(number=numbers)
    def stage_config_hash(self, number: int) -> None:
        self.stage(
            lambda s: s.stage_config_hash(number), lambda m: setattr(m, "config_hash", number)
        )

    @precondition(lambda self: self.levels)
    @rule()
    def forget_checkpoints(self) -> None:
        self.stage(lambda s: s.forget_checkpoints(), _forget_checkpoints)

    # what stands for itself

    @rule(number=numbers)
    def write_config_hash(self, number: int) -> None:
        self.store.write_config_hash(number)
        self.committed.config_hash = number

    @rule()
    def forget_config_hash(self) -> None:
        self.store.forget_config_hash()
        self.committed.config_hash = None

    @rule()
    def clear_checkpoints(self) -> None:
        if self.levels:
            with pytest.raises(RefusedError, match="part of a session"):
                self.store.clear_checkpoints()
        else:
            self.store.clear_checkpoints()
            _forget_checkpoints(self.committed)

    @rule()
    def reopen(self) -> None:
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
                assert dict(handle.items(space)) == self.committed.data[space]
        assert self.store.in_session == bool(self.levels)

    @precondition(lambda self: self.levels and not self.is_doomed)
    @rule(source=sources, space=spaces, key=keys)
    def the_session_sees_what_is_staged(self, source: str, space: str, key: bytes) -> None:
        view = self.view
        assert self.session.read_checkpoint(source) == view.checkpoints().get(source)
        assert self.session.get(space, key) == view.data[space].get(key)


def _forget_checkpoints(model: Model) -> None:
    model.sequences.clear()
    model.positions.clear()
    model.config_hash = None


def run(opened: Callable[[], tuple[OpenStore, Callable[[], None]]], examples: int) -> None:
    class OnThisBackend(Histories):
        def __init__(self) -> None:
            self.opened, self.forget = opened()
            super().__init__()

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        OnThisBackend,
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
def in_redis(redis: RedisServer) -> Iterator[Callable[[], tuple[OpenStore, Callable[[], None]]]]:
    def opened() -> tuple[OpenStore, Callable[[], None]]:
        namespace = f"model-{uuid.uuid4()}"
        return partial(open_progress, redis.url, namespace=namespace), lambda: None

    yield opened


def test_memory_follows_the_model() -> None:
    run(in_memory, 60)


def test_rocksdb_follows_the_model() -> None:
    run(in_rocksdb, 40)


def test_redis_follows_the_model(in_redis: Any) -> None:
    run(in_redis, 40)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_all_follow_the_model_for_long(in_redis: Any) -> None:
    for opened in (in_memory, in_rocksdb, in_redis):
        run(opened, 1000)
