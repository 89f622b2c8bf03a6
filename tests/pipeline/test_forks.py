"""A pipeline forked from another: both go on, each as if it were alone, and neither is changed."""

from __future__ import annotations

import shutil
from collections import Counter
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
    Uninterrupted,
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


@pytest.fixture
def world(spark: SparkSession, input_folder: Path, tmp_path: Path) -> World:
    return World(spark, input_folder, tmp_path)


def up_to(root: Path, epoch: int) -> Shown:
    """What the sinks of a pipeline show up to an epoch."""
    import json

    found: Shown = {}
    for sink in ("main", "large"):
        rows = [row for row in values_in(root / sink) if row.pop("epoch") <= epoch]
        found[sink] = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def together(one: Shown, other: Shown) -> Shown:
    return {sink: one.get(sink, Counter()) + other.get(sink, Counter()) for sink in one}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        case
        if (case.values[0], case.values[1]) == ("windowed", "hdfs")
        else pytest.param(*case.values, marks=[pytest.mark.slow])
        for case in (
            pytest.param(kind, provider)
            for kind in KINDS
            if "one-sink" not in kind
            for provider in providers_for(kind)
        )
    ],
)
def test_I16_origin_and_fork_each_go_on_as_if_they_were_alone(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    uninterrupted: Uninterrupted,
    kind: str,
    provider: str,
) -> None:
    world = World(spark, input_folder, tmp_path, kind)
    with provider_of(spark, provider):
        world.origin(keep=50)
        before = world.bytes_of("origin")
        world.deliver()
        world.fork().run()
        assert world.bytes_of("origin") == before
        of_fork = world.bytes_of("fork")
        world.origin(keep=50)
        assert world.bytes_of("fork") == of_fork
    expected = uninterrupted(kind)
    assert shown(world.place("origin")) == expected
    past = up_to(world.place("origin"), BEFORE)
    assert together(past, shown(world.place("fork"))) == expected


def test_a_fork_of_an_older_checkpoint_runs_the_epochs_since_again(
    world: World, uninterrupted: Uninterrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    world.deliver()
    world.origin(keep=50)
    run = world.fork(at="@2").run()
    assert f"forked from {world.place('origin') / 'store'}@2" in run.report.notes[0]
    past = up_to(world.place("origin"), 2)
    assert together(past, shown(world.place("fork"))) == uninterrupted("windowed")
    stores = [world.place(name) / "store" for name in ("origin", "fork")]
    cli = Cli(capsys)
    found = cli.document("compare", *stores)
    assert found["since"] == 2
    assert found["epochs"]
    verdicts = {
        output["verdict"] for epoch in found["epochs"] for output in epoch["outputs"].values()
    }
    assert verdicts == {"equal"}
    cli("show", stores[1], "latest")
    assert "forked from" in cli.out
    cli("list", stores[1])
    assert "forked from" in cli.out
    cli("recover", stores[1], "--explain")
    assert "It is a fork of" in " ".join(cli.out.split())


def test_a_restart_goes_on_from_its_own_store_though_the_origin_is_gone(
    world: World, uninterrupted: Uninterrupted
) -> None:
    world.origin()
    world.fork(at="@3").run()
    past = up_to(world.place("origin"), BEFORE)
    shutil.rmtree(world.place("origin"))
    world.deliver()
    run = world.fork(at="@3", keep=1).run()
    assert run.report.chosen_id is not None
    world.pipeline("fork").run()
    assert together(past, shown(world.place("fork"))) == uninterrupted("windowed")
    with open_store(world.place("fork") / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        assert newest.fork is not None  # though its first checkpoint is pruned
    with pytest.raises(RefusedError, match="was not forked from"):
        world.fork(at="@2").run()


def test_a_sink_that_writes_where_the_origin_writes_is_refused_and_nothing_is_written(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.origin()
    taken = world.place("origin") / "main"
    (world.root / "link").symlink_to(taken)
    before = world.bytes_of("origin")
    for path in (taken, f"{taken}/", world.root / "link", taken / "inside"):
        p = Pipeline("fork", world.root / "new", fork=world.place("origin") / "store")
        source = p.source("orders", orders(world.spark, world.folder))
        p.sink("main", source, FileSink(path))
        for act in (p.run, p.check):
            with pytest.raises(RefusedError, match="sink 'main' writes to"):
                act()
    assert world.bytes_of("origin") == before
    assert not (world.root / "new").exists()
    # the same for a store that was forked by the command, at its first start and at later ones
    cli = Cli(capsys)
    assert cli("fork", world.place("origin") / "store", world.root / "new") == 0
    p = Pipeline("fork", world.root / "new", policy="warn")
    p.sink("main", p.source("orders", orders(world.spark, world.folder)), FileSink(taken))
    with pytest.raises(RefusedError, match="sink 'main' writes to"):
        p.run()
    assert world.bytes_of("origin") == before


def test_a_store_that_the_command_has_forked_is_continued_by_a_pipeline(
    world: World, uninterrupted: Uninterrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    world.origin()
    stores = [world.place(name) / "store" for name in ("origin", "fork")]
    assert Cli(capsys)("fork", *stores) == 0
    world.deliver()
    world.pipeline("fork").run()
    past = up_to(world.place("origin"), BEFORE)
    assert together(past, shown(world.place("fork"))) == uninterrupted("windowed")


def test_what_cannot_be_forked_is_refused_before_anything_is_claimed(world: World) -> None:
    world.origin()
    store = world.place("origin") / "store"
    with pytest.raises(InvalidInputError, match="not both"):
        Pipeline("fork", world.root / "new", fork=store, adopt="/old")
    named = Pipeline("origin", world.root / "new", fork=store)
    KINDS["windowed"](named, world.spark, world.folder, world.root / "new-sinks")
    with pytest.raises(RefusedError, match="name of its own"):
        named.run()
    for policy in ("strict", "auto_reset"):
        other = Pipeline("fork", world.root / "new", fork=store, policy=policy)
        source = other.source("orders", orders(world.spark, world.folder))
        other.sink("main", source.dropDuplicates(["id"]), FileSink(world.root / "new-main"))
        with pytest.raises(RefusedError):
            other.run()
    used = world.fork(working_copy=store / "working")
    with pytest.raises(InvalidInputError, match="working_copy"):
        used.run()
    assert not (world.root / "new").exists()
    assert not (world.place("fork") / "store").exists()


def test_check_tells_what_a_fork_would_do_and_starts_nothing(world: World) -> None:
    world.origin()
    assert world.fork().check().fit is Compatibility.SAME
    assert not (world.place("fork") / "store").exists()


@pytest.mark.parametrize("step", slow_except(["begin", "save", "commit"], "save"))
def test_a_fork_that_dies_in_its_first_epoch_goes_on_where_it_was(
    world: World, uninterrupted: Uninterrupted, step: str
) -> None:
    world.origin()
    world.deliver()
    with pytest.raises(SimulatedCrash):
        world.fork(on_step=crash_at(step, "before", BEFORE + 1)).run()
    shutil.rmtree(world.place("fork") / "store" / "working")
    world.fork().run()
    past = up_to(world.place("origin"), BEFORE)
    assert together(past, shown(world.place("fork"))) == uninterrupted("windowed")


def test_an_origin_that_runs_in_the_same_session_goes_on(world: World) -> None:
    run = world.pipeline("origin").start({"processingTime": "100 milliseconds"})
    try:
        while run.epoch is None or run.epoch < BEFORE:
            run.await_termination(0.1)
        world.deliver()
        world.fork().run()
        assert run.exception() is None
        while run.epoch < EPOCHS:
            run.await_termination(0.1)
            assert run.exception() is None
    finally:
        run.stop()


def test_a_changed_pipeline_is_forked_and_keeps_the_state_of_what_stayed(world: World) -> None:
    """Blue and green: the new pipeline runs beside the old one on the same state."""

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
    world.deliver()
    with pytest.raises(RefusedError, match="policy='evolve'"):
        declare("green", pairs=True, fork=blue).run()
    declare("green", pairs=True, fork=blue, policy="evolve").run()
    declare("green", pairs=True, fork=blue, policy="evolve").run()  # it may stay in the program
    declare("blue", pairs=False).run()

    def newest(name: str) -> dict[int, int]:
        rows = sorted(values_in(world.place(name) / "counts"), key=lambda row: row["epoch"])
        return {row["k"]: row["count"] for row in rows}

    assert newest("green") == newest("blue")
    assert len(newest("blue")) == 5
    # and a fork of what was upgraded goes on from there
    declare("third", pairs=True, fork=world.place("green") / "store").run()
    with open_store(world.place("third") / "store") as store:
        first = store.load_by_id(1)
        assert first is not None
        assert first.upgrade is None


def test_functions_are_called_under_keys_of_the_forks_own_history(world: World) -> None:
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


def test_a_rolled_back_fork_goes_back_to_where_it_began_and_no_further(
    world: World, uninterrupted: Uninterrupted
) -> None:
    world.origin()
    world.deliver()
    world.fork().run()
    before = world.bytes_of("origin")
    with open_store(world.place("fork") / "store") as store:
        roll_back(store, 1, "fork")
    world.pipeline("fork").run()
    assert world.bytes_of("origin") == before
    past = up_to(world.place("origin"), BEFORE)
    assert together(past, shown(world.place("fork"))) == uninterrupted("windowed")
