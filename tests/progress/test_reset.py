"""Starting: the order of a reset, a crash at each of its steps, and what a start refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.errors import PositionUnavailable, RefusedError
from seamark.progress import (
    Action,
    Decision,
    Reason,
    SourceCheckpoint,
    SourceCheckpointStore,
    begin_from,
    open_progress,
    start_over,
)
from seamark.progress.ledger import Changes
from seamark.progress.reset import RESERVED_SPACE
from seamark.progress.rocksdb.ledger import RocksDBLedger
from seamark.testing.crashes import SimulatedCrash

HASH, OTHER = 0, 2**64 - 1
BEFORE = [(f"k{n}".encode(), b"before") for n in range(4)]
LOADED = [(f"k{n}".encode(), b"loaded") for n in range(4)]


class Log:
    """A source whose past can go."""

    def __init__(self, name: str = "log", *, supports_replay: bool = True) -> None:
        self.name = name
        self.supports_replay = supports_replay
        self.oldest = 0
        self.asked: list[bytes] = []

    def check_position(self, position: bytes) -> None:
        self.asked.append(position)
        if int(position) < self.oldest:
            raise PositionUnavailable(
                "pruned", source=self.name, requested=position, earliest=str(self.oldest).encode()
            )


class Program:
    """A program that keeps one space of data and one source in a store."""

    def __init__(self, store: SourceCheckpointStore, *, with_load: bool = True) -> None:
        self.store = store
        self.sources = {"log": Log()}
        self.steps: list[str] = []
        self.crash_at: tuple[str, int] | None = None
        self.with_load = with_load

    def start(self, policy: str = "strict", config: int = HASH) -> Decision:
        load = self.load if self.with_load else None
        return begin_from(
            self.store, config, self.sources, policy, clear_data=self.clear_data, load=load
        )

    def clear_data(self) -> None:
        for number, (key, _) in enumerate(BEFORE):
            self._step("clear", number)
            with self.store.session() as s:
                s.delete("rows", key)
        self._step("clear", len(BEFORE))

    def load(self) -> None:
        for number, (key, value) in enumerate(LOADED):
            self._step("load", number)
            with self.store.session() as s:
                s.put("rows", key, value)
                s.stage_checkpoint("log", 0, b"100")
        self._step("load", len(LOADED))

    def run(self) -> None:
        with self.store.session() as s:
            s.put_many("rows", BEFORE)
            s.stage_checkpoint("log", 7, b"107")

    def rows(self) -> list[tuple[bytes, bytes]]:
        return [*self.store.items("rows")]

    def _step(self, name: str, number: int) -> None:
        self.steps.append(name)
        if (name, number) == self.crash_at:
            raise SimulatedCrash(f"{name} {number}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SourceCheckpointStore]:
    with open_progress(f"rocksdb://{tmp_path}/progress") as opened:
        yield opened


@pytest.fixture
def program(store: SourceCheckpointStore) -> Program:
    """One that has been started and has read something."""
    found = Program(store)
    assert found.start().reason is Reason.FIRST_START
    found.run()
    found.steps.clear()
    return found


POINTS = [
    *(("clear", number) for number in range(len(BEFORE) + 1)),
    *(("load", number) for number in range(len(LOADED) + 1)),
]


def test_a_first_start_loads_and_goes_on_from_there(store: SourceCheckpointStore) -> None:
    program = Program(store)
    decision = program.start()
    assert decision.action is Action.FRESH_START
    assert (decision.resume_from, decision.sequences) == ({"log": b"100"}, {"log": 0})
    assert program.rows() == LOADED
    assert store.read_config_hash() == HASH


def test_a_first_start_without_a_load_begins_at_the_beginning(store: SourceCheckpointStore) -> None:
    decision = Program(store, with_load=False).start()
    assert (decision.resume_from, decision.sequences) == ({"log": None}, {})


def test_a_later_start_resumes_and_changes_nothing(program: Program) -> None:
    decision = program.start()
    assert decision.action is Action.RESUME
    assert (decision.resume_from, decision.sequences) == ({"log": b"107"}, {"log": 7})
    assert program.steps == []
    assert program.sources["log"].asked[-1] == b"107"
    assert program.rows() == BEFORE


@pytest.mark.parametrize("then", ["strict", "warn", "auto_reset"])
@pytest.mark.parametrize("config", [HASH, OTHER])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]}-{point[1]}")
def test_a_crash_in_a_reset_repeats_all_of_it(
    program: Program, point: tuple[str, int], config: int, then: str
) -> None:
    program.crash_at = point
    with pytest.raises(SimulatedCrash):
        program.start("auto_reset", OTHER)
    program.crash_at = None
    program.steps.clear()
    decision = program.start(then, config)
    assert (decision.action, decision.reason) == (Action.RESET, Reason.UNFINISHED)
    assert (program.steps[0], program.steps[-1]) == ("clear", "load")
    assert decision.resume_from == {"log": b"100"}
    assert program.rows() == LOADED
    assert program.store.read_config_hash() == config
    assert program.start("strict", config).action is Action.RESUME


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]}-{point[1]}")
def test_a_crash_in_a_first_load_repeats_it(
    store: SourceCheckpointStore, point: tuple[str, int]
) -> None:
    program = Program(store)
    program.crash_at = point
    with pytest.raises(SimulatedCrash):
        program.start()
    program.crash_at = None
    assert program.start().reason is Reason.UNFINISHED
    assert program.rows() == LOADED
    assert program.start().reason is Reason.UNCHANGED


COMMITS = 2 + len(BEFORE) + 1 + len(LOADED) + 1
"""Of a reset: the marker, the hash, the data, the checkpoints, the load, and hash and marker."""


@pytest.mark.parametrize("then", ["strict", "warn", "auto_reset"])
@pytest.mark.parametrize("commits", range(COMMITS + 1))
def test_a_crash_after_any_commit_of_a_reset_repeats_all_of_it(
    program: Program, monkeypatch: pytest.MonkeyPatch, commits: int, then: str
) -> None:
    left = iter(range(commits))
    apply = RocksDBLedger.apply

    def apply_or_die(ledger: RocksDBLedger, changes: Changes) -> None:
        if next(left, None) is None:
            raise SimulatedCrash("before a commit")
        apply(ledger, changes)

    with monkeypatch.context() as patched:
        patched.setattr(RocksDBLedger, "apply", apply_or_die)
        if commits == COMMITS:
            program.start("auto_reset", OTHER)
            assert next(left, None) is None, "there were fewer commits"
        else:
            with pytest.raises(SimulatedCrash):
                program.start("auto_reset", OTHER)
    if commits == 0:
        assert program.rows() == BEFORE
        assert program.start("strict", HASH).reason is Reason.UNCHANGED
        return
    decision = program.start(then, OTHER)
    is_done = commits == COMMITS
    assert decision.reason is (Reason.UNCHANGED if is_done else Reason.UNFINISHED)
    assert decision.resume_from == {"log": b"100"}
    assert program.rows() == LOADED
    assert [*program.store.items(RESERVED_SPACE)] == []
    assert program.start("strict", OTHER).reason is Reason.UNCHANGED


def test_the_hash_is_gone_while_a_reset_is_under_way_and_comes_back_last(program: Program) -> None:
    store = program.store
    seen = []
    start_over(
        store,
        OTHER,
        clear_data=lambda: seen.append((store.read_config_hash(), store.read_checkpoint("log"))),
        load=lambda: seen.append((store.read_config_hash(), store.read_checkpoint("log"))),
    )
    assert seen == [(None, SourceCheckpoint(7, b"107")), (None, None)]
    assert store.read_config_hash() == OTHER


def test_a_load_that_leaves_a_session_open_is_refused_and_repeated(program: Program) -> None:
    store = program.store

    def load() -> None:
        store.begin().put("rows", b"k0", b"loaded")

    with pytest.raises(RefusedError, match="left a session open"):
        start_over(store, HASH, clear_data=program.clear_data, load=load)
    store.rollback()
    assert store.read_config_hash() is None
    assert program.start().reason is Reason.UNFINISHED


def test_a_reset_inside_a_session_is_refused_before_anything_happens(program: Program) -> None:
    with program.store.session(), pytest.raises(RefusedError, match="part of a session"):
        start_over(program.store, OTHER, clear_data=program.clear_data)
    assert program.steps == []
    assert program.store.read_config_hash() == HASH


@pytest.fixture
def without_hash(store: SourceCheckpointStore) -> Program:
    """One that never stored a hash, and has read something."""
    found = Program(store)
    found.run()
    return found


def test_data_without_a_hash_is_refused_until_it_is_accepted(without_hash: Program) -> None:
    store = without_hash.store
    with pytest.raises(RefusedError, match="No hash of a configuration was ever stored"):
        without_hash.start("strict")
    assert (without_hash.steps, without_hash.rows()) == ([], BEFORE)
    assert store.read_checkpoint("log") == SourceCheckpoint(7, b"107")
    assert store.read_config_hash() is None
    store.write_config_hash(HASH)
    decision = without_hash.start("strict")
    assert (decision.action, decision.reason) == (Action.RESUME, Reason.UNCHANGED)
    assert without_hash.rows() == BEFORE


def test_data_without_a_hash_is_gone_on_with_after_one_warning(
    without_hash: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "seamark.progress"):
        decision = without_hash.start("warn")
        assert (decision.action, decision.reason) == (Action.RESUME, Reason.CONFIG_UNKNOWN)
        assert decision.resume_from == {"log": b"107"}
        assert without_hash.start("strict").reason is Reason.UNCHANGED
    assert (without_hash.steps, without_hash.rows()) == ([], BEFORE)
    assert [decision.words in record.getMessage() for record in caplog.records] == [True]


def test_data_without_a_hash_is_reset_when_that_is_allowed(without_hash: Program) -> None:
    decision = without_hash.start("auto_reset")
    assert (decision.action, decision.reason) == (Action.RESET, Reason.CONFIG_UNKNOWN)
    assert without_hash.rows() == LOADED


def test_another_configuration_is_refused_and_nothing_changes(program: Program) -> None:
    with pytest.raises(RefusedError, match="configuration"):
        program.start("strict", OTHER)
    assert (program.steps, program.rows()) == ([], BEFORE)
    assert program.store.read_config_hash() == HASH
    assert program.start().action is Action.RESUME


def test_a_warning_is_given_once(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "seamark.progress"):
        decision = program.start("warn", OTHER)
        assert (decision.action, decision.reason) == (Action.RESUME, Reason.CONFIG_CHANGED)
        assert program.rows() == BEFORE
        assert program.start("strict", OTHER).reason is Reason.UNCHANGED
    assert [record.getMessage() for record in caplog.records if decision.words in record.message]
    assert len(caplog.records) == 1


def test_a_position_that_is_gone_is_the_sources_own_error(program: Program) -> None:
    program.sources["log"].oldest = 108
    for policy in ("strict", "warn"):
        with pytest.raises(PositionUnavailable) as caught:
            program.start(policy)
        assert (caught.value.source, caught.value.requested) == ("log", b"107")
        assert caught.value.earliest == b"108"
        assert isinstance(caught.value.__cause__, PositionUnavailable)
    assert (program.steps, program.rows()) == ([], BEFORE)


def test_a_position_that_is_gone_is_reset_when_that_is_allowed(program: Program) -> None:
    program.sources["log"].oldest = 108
    program.with_load = False
    decision = program.start("auto_reset")
    assert (decision.action, decision.reason) == (Action.RESET, Reason.POSITION_GONE)
    assert (decision.resume_from, program.rows()) == ({"log": None}, [])


def test_after_one_reset_a_second_failure_is_an_error(program: Program) -> None:
    program.sources["log"].oldest = 108  # the load gives 100
    with pytest.raises(PositionUnavailable, match="after a reset"):
        program.start("auto_reset")
    assert program.steps.count("clear") == len(BEFORE) + 1, "one reset, not two"


def test_a_load_that_leaves_a_source_out_is_told_at_once(store: SourceCheckpointStore) -> None:
    program = Program(store)
    program.sources["other"] = Log("other")
    with pytest.raises(RefusedError, match="'other' has no checkpoint"):
        program.start("auto_reset")


def test_a_source_that_cannot_be_read_again(store: SourceCheckpointStore) -> None:
    program = Program(store, with_load=False)
    program.sources["log"] = Log(supports_replay=False)
    for policy in ("strict", "warn"):
        with pytest.raises(RefusedError, match="cannot be read again"):
            program.start(policy)
    for action in (Action.FRESH_START, Action.RESET, Action.RESET):
        decision = program.start("auto_reset")
        assert (decision.action, decision.reason) == (action, Reason.NOT_REPLAYABLE)
        assert (program.rows(), decision.resume_from) == ([], {"log": None})
        program.run()
    assert program.sources["log"].asked == []


def test_an_error_of_a_source_that_says_nothing_about_its_past_goes_through(
    program: Program,
) -> None:
    class Unreachable(Log):
        def check_position(self, position: bytes) -> None:
            raise ConnectionRefusedError("no answer")

    program.sources["log"] = Unreachable()
    with pytest.raises(ConnectionRefusedError):
        program.start("auto_reset")
    assert (program.steps, program.rows()) == ([], BEFORE)


def test_memory_begins_anew_each_time() -> None:
    program = Program(open_progress("memory://"))
    for _ in range(2):
        decision = program.start()
        assert (decision.action, decision.reason) == (Action.FRESH_START, Reason.VOLATILE)
        assert decision.resume_from == {"log": b"100"}
        assert program.rows() == LOADED
        program.run()
