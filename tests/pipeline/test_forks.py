"""A pipeline forked from another: both go on, each as if it were alone, and neither is changed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import InvalidInputError, RefusedError
from seamark.pipeline.declaration.compatibility import Compatibility
from seamark.pipeline.recovery.rollback import roll_back
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.cli.support.running import Cli
from tests.pipeline.support.workloads import (
    EPOCHS,
    KINDS,
    Shown,
    orders,
    provider_of,
    providers_for,
    shown,
    values_in,
)
from tests.support.slow_cases import slow_except

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seamark.pipeline.run import Run

pytestmark = [pytest.mark.warm, pytest.mark.timeout(600)]

BEFORE = 3
"""Files that the origin has read when it is forked."""


class World:
    """Input that arrives in parts, an origin, and forks of it."""

    def __init__(
        self, spark: SparkSession, files: Path, root: Path, kind: str = "windowed"
    ) -> None:
        self.spark = spark
        self.root = root
        self.kind = kind
        self.folder = root / "input"
        self._all = files
        self.deliver(BEFORE)

    def deliver(self, files: int = EPOCHS + 1) -> None:
        """Let the sources have so many files."""
        for name in ("orders", "payments"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            for path in sorted((self._all / name).iterdir())[:files]:
                shutil.copy2(path, self.folder / name / path.name)

    def place(self, name: str) -> Path:
        return self.root / name

    def pipeline(self, name: str, **options: Any) -> Pipeline:
        """The pipeline of that name, with store and sinks in a folder of its own."""
        p = Pipeline(name, self.place(name) / "store", **options)
        KINDS[self.kind](p, self.spark, self.folder, self.place(name))
        return p

    def origin(self, **options: Any) -> Run:
        return self.pipeline("origin", **options).run()

    def fork(self, name: str = "fork", at: str = "", **options: Any) -> Pipeline:
        return self.pipeline(name, fork=f"{self.place('origin') / 'store'}{at}", **options)

    def bytes_of(self, name: str) -> dict[str, bytes]:
        """Every file of a pipeline's store and sinks, but for locks and the working copy."""
        root = self.place(name)
        hidden = {"locks", "tmp", "working", "progress"}
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and not hidden & set(path.relative_to(root).parts)
        }


@dataclass(frozen=True)
class Settled:
    """An origin that was forked while it had read a part of its input, and has gone on since."""

    world: World
    epoch: int
    """At which it was forked."""
    unchanged: bool
    """Whether the fork has left every byte of the origin as it was."""
    checked: Compatibility
    """What ``check()`` said of the fork before it was made."""

    @property
    def store(self) -> Path:
        """A copy of the origin's store as it was then, which a test may do anything to."""
        return self.world.place("frozen")

    @property
    def past(self) -> Shown:
        return up_to(self.world.place("origin"), self.epoch)

    @property
    def alone(self) -> Shown:
        """What the origin shows in the end."""
        return shown(self.world.place("origin"))


@pytest.fixture(scope="module")
def settled(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Settled:
    world = World(spark, input_folder, tmp_path_factory.mktemp("settled"))
    epoch = world.origin(keep=50).epoch
    shutil.copytree(world.place("origin") / "store", world.place("frozen"))
    before = world.bytes_of("origin")
    world.deliver()
    checked = world.fork().check().fit
    assert not (world.place("fork") / "store").exists()
    world.fork().run()
    unchanged = world.bytes_of("origin") == before
    world.origin(keep=50)
    return Settled(world, epoch, unchanged, checked)


class Alone:
    """What the sinks of a kind show after the same two runs of a pipeline that nobody forks."""

    def __init__(self, spark: SparkSession, files: Path, base: Path) -> None:
        self._spark = spark
        self._files = files
        self._base = base
        self._found: dict[tuple[str, str], Shown] = {}

    def __call__(self, kind: str = "windowed", provider: str = "hdfs") -> Shown:
        if (kind, provider) not in self._found:
            world = World(self._spark, self._files, self._base / f"{kind}-{provider}", kind)
            with provider_of(self._spark, provider):
                world.origin()
                world.deliver()
                world.origin()
            self._found[kind, provider] = shown(world.place("origin"))
            assert all(self._found[kind, provider].values()), "a sink without rows proves nothing"
        return self._found[kind, provider]


@pytest.fixture(scope="module")
def alone(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Alone:
    return Alone(spark, input_folder, tmp_path_factory.mktemp("alone"))


def up_to(root: Path, epoch: int) -> Shown:
    """What the sinks of a pipeline show up to an epoch."""
    found: Shown = {}
    for sink in ("main", "large"):
        rows = [row for row in values_in(root / sink) if row.pop("epoch") <= epoch]
        found[sink] = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def together(one: Shown, other: Shown) -> Shown:
    return {sink: rows + other.get(sink, Counter()) for sink, rows in one.items()}


def test_I16_origin_and_fork_both_go_on_with_the_same_results(settled: Settled) -> None:
    assert settled.unchanged
    assert settled.checked is Compatibility.SAME
    assert all(settled.alone.values()), "a sink without rows proves nothing"
    assert together(settled.past, shown(settled.world.place("fork"))) == settled.alone


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        (kind, provider)
        for kind in KINDS
        if "one-sink" not in kind
        for provider in providers_for(kind)
    ],
)
def test_I16_origin_and_fork_each_go_on_as_if_they_were_alone(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    alone: Alone,
    kind: str,
    provider: str,
) -> None:
    world = World(spark, input_folder, tmp_path, kind)
    with provider_of(spark, provider):
        epoch = world.origin(keep=50).epoch
        before = world.bytes_of("origin")
        world.deliver()
        world.fork().run()
        assert world.bytes_of("origin") == before
        of_fork = world.bytes_of("fork")
        world.origin(keep=50)
        assert world.bytes_of("fork") == of_fork
    assert shown(world.place("origin")) == alone(kind, provider)
    past = up_to(world.place("origin"), epoch)
    assert together(past, shown(world.place("fork"))) == alone(kind, provider)


@pytest.mark.slow
def test_a_fork_of_an_older_checkpoint_runs_the_epochs_since_again_and_is_equal(
    settled: Settled, capsys: pytest.CaptureFixture[str]
) -> None:
    world, origin = settled.world, settled.world.place("origin")
    run = world.fork("older", at="@2").run()
    assert f"forked from {origin / 'store'}@2 after epoch 2" in run.report.notes[0]
    cli, stores = Cli(capsys), [world.place(name) / "store" for name in ("origin", "older")]
    found = cli.document("compare", *stores)
    assert (found["related"], found["since"], found["different"]) == (True, 2, False)
    assert cli.document("show", stores[1], "latest")["fork"]["checkpoint"] == 2
    first = cli.document("list", stores[1])["checkpoints"][-1]
    assert first["note"] == f"forked from {origin / 'store'}@2"
    assert cli.document("recover", stores[1], "--explain")["chosen"]["fork"]["epoch"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("step", slow_except(["begin", "save", "commit"], "save"))
def test_a_fork_that_dies_in_its_first_epoch_goes_on_though_its_origin_is_gone(
    settled: Settled, tmp_path: Path, step: str
) -> None:
    world, name = settled.world, f"dies-at-{step}"
    shutil.copytree(settled.store, tmp_path / "gone")

    def fork(at: str = "", **options: Any) -> Pipeline:
        return world.pipeline(name, fork=f"{tmp_path / 'gone'}{at}", **options)

    with pytest.raises(SimulatedCrash):
        fork(on_step=crash_at(step, "before", settled.epoch + 1)).run()
    shutil.rmtree(world.place(name) / "store" / "working")
    shutil.rmtree(tmp_path / "gone")
    run = fork(keep=1).run()
    assert run.report.chosen_id is not None
    assert together(settled.past, shown(world.place(name))) == settled.alone
    with open_store(world.place(name) / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        assert newest.fork is not None, "though its first checkpoint is pruned"
    with pytest.raises(RefusedError, match="was not forked from"):
        fork("@2").run()


def test_a_sink_that_writes_where_the_origin_writes_is_refused_and_nothing_is_written(
    settled: Settled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, taken = settled.world, settled.world.place("origin") / "main"
    (tmp_path / "link").symlink_to(taken)
    before = world.bytes_of("origin")

    def declare(path: object, **options: Any) -> Pipeline:
        p = Pipeline("forked", tmp_path / "new", **options)
        source = p.source("orders", orders(world.spark, world.folder))
        p.sink("main", source, FileSink(str(path)))
        return p

    for path in (taken, f"{taken}/", tmp_path / "link", taken / "inside"):
        p = declare(path, fork=settled.store)
        for act in (p.run, p.check):
            with pytest.raises(RefusedError, match="sink 'main' writes to"):
                act()
    assert not (tmp_path / "new").exists()
    # the same for a store that was forked by the command, at its first start and at later ones
    assert Cli(capsys)("fork", settled.store, tmp_path / "new") == 0
    with pytest.raises(RefusedError, match="sink 'main' writes to"):
        declare(taken, policy="warn").run()
    p = Pipeline("forked", tmp_path / "new")
    KINDS["windowed"](p, world.spark, world.folder, tmp_path)
    p.run()
    assert together(settled.past, shown(tmp_path)) == settled.alone
    with pytest.raises(RefusedError, match="sink 'main' writes to"):
        declare(taken, policy="warn").run()
    assert world.bytes_of("origin") == before


def test_what_cannot_be_forked_is_refused_before_anything_is_claimed(
    settled: Settled, tmp_path: Path
) -> None:
    world, store = settled.world, settled.store
    with pytest.raises(InvalidInputError, match="not both"):
        Pipeline("new", tmp_path / "new", fork=store, adopt="/old")
    named = Pipeline("origin", tmp_path / "new", fork=store)
    KINDS["windowed"](named, world.spark, world.folder, tmp_path / "sinks")
    with pytest.raises(RefusedError, match="name of its own"):
        named.run()
    for policy in ("strict", "auto_reset"):
        other = Pipeline("new", tmp_path / "new", fork=store, policy=policy)
        source = other.source("orders", orders(world.spark, world.folder))
        other.sink("main", source.dropDuplicates(["id"]), FileSink(tmp_path / "main"))
        with pytest.raises(RefusedError):
            other.run()
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "sinks").exists()


def test_an_origin_that_runs_in_the_same_session_goes_on(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    world = World(spark, input_folder, tmp_path, "stateless-one-sink")
    run = world.pipeline("origin").start({"processingTime": "100 milliseconds"})
    try:
        while run.epoch < BEFORE:
            run.await_termination(0.1)
        world.fork().run()
        world.deliver(BEFORE + 1)
        while run.epoch < BEFORE + 1:
            run.await_termination(0.1)
    finally:
        run.stop()
    assert run.exception() is None


@pytest.mark.slow
def test_a_changed_pipeline_is_forked_and_keeps_the_state_of_what_stayed(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    """Blue and green: the new pipeline runs beside the old one on the same state."""
    world = World(spark, input_folder, tmp_path)

    def declare(name: str, *, pairs: bool, **options: Any) -> Pipeline:
        p = Pipeline(name, world.place(name) / "store", output_mode="update", **options)
        source = p.source("orders", orders(world.spark, world.folder))
        if pairs:
            p.sink(
                "pairs", source.dropDuplicates(["k", "v"]), FileSink(world.place(name) / "pairs")
            )
        p.sink("counts", source.groupBy("k").count(), FileSink(world.place(name) / "counts"))
        return p

    blue = world.place("blue") / "store"
    declare("blue", pairs=False).run()
    world.deliver(BEFORE + 1)
    with pytest.raises(RefusedError, match="policy='evolve'"):
        declare("green", pairs=True, fork=blue).run()
    declare("green", pairs=True, fork=blue, policy="evolve").run()
    declare("blue", pairs=False).run()

    def newest(name: str) -> dict[int, int]:
        rows = sorted(values_in(world.place(name) / "counts"), key=lambda row: row["epoch"])
        return {row["k"]: row["count"] for row in rows}

    assert newest("green") == newest("blue")
    assert len(newest("blue")) == 5
    # and a fork of what was upgraded, at the upgrade itself, goes on from there
    declare("third", pairs=True, fork=f"{world.place('green') / 'store'}@2").run()
    assert newest("third") == newest("blue")
    with open_store(world.place("third") / "store") as store:
        first = store.load_by_id(1)
        assert first is not None
        assert first.upgrade is None


@pytest.mark.slow
def test_functions_are_called_under_keys_of_the_forks_own_history(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    world = World(spark, input_folder, tmp_path)
    calls: dict[str, list[tuple[int, str, int]]] = {"origin": [], "fork": []}

    def declare(name: str, **options: Any) -> Pipeline:
        p = Pipeline(name, world.place(name) / "store", **options)
        source = p.source("orders", orders(world.spark, world.folder))

        def note(df: Any, epoch: Any) -> None:
            calls[name].append((int(epoch), epoch.key, df.count()))

        p.sink("noted", source, ForeachBatchSink(note, idempotent=True))
        return p

    declare("origin").run()
    world.deliver()
    declare("fork", fork=world.place("origin") / "store").run()
    declare("origin").run()
    later = [call for call in calls["origin"] if call[0] > BEFORE]
    assert [(epoch, rows) for epoch, _, rows in later] == [
        (epoch, rows) for epoch, _, rows in calls["fork"]
    ]
    assert not {key for _, key, _ in later} & {key for _, key, _ in calls["fork"]}


@pytest.mark.slow
def test_a_fork_that_is_rolled_back_goes_back_to_where_it_began_and_no_further(
    settled: Settled,
) -> None:
    world = settled.world

    def fork() -> Pipeline:
        return world.pipeline("rolled-back", fork=settled.store)

    fork().run()
    before = world.bytes_of("origin")
    with open_store(world.place("rolled-back") / "store") as store:
        roll_back(store, 1, "rolled-back")
    fork().run()
    assert world.bytes_of("origin") == before
    assert together(settled.past, shown(world.place("rolled-back"))) == settled.alone
