"""Which rows a start has the next epoch run on, whatever directory it finds. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.capture.plans import install_plan
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, LineageError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.pipeline.declaration.compile import Compiled, Output
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.declaration.structure import DeclaredPipeline, PipelineIdentity
from seamark.pipeline.epoch.epoch_plan import functions_in, store_plan
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.running_epoch import RunningEpoch, new_attempt
from seamark.pipeline.recovery.recovery import Recovery
from seamark.pipeline.recovery.rollback import roll_back
from seamark.pipeline.recovery.starting_point import StartingPoint
from seamark.sinks import ForeachBatchSink
from seamark.spark.batch_log import parse_offsets
from seamark.state.pack import PackBuilder
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG
from seamark.store.layout import ObjectLayout
from tests.pipeline.test_epoch_plan import plan_of

LEAVES = ("in",)
STRUCTURE: dict[str, Any] = {"sources": {}, "sinks": {}}


class World:
    """One store, and machines that each have a directory of their own."""

    def __init__(self, base: Path, outputs: tuple[Output, ...] = ()) -> None:
        self._base = base
        self.blobs = MemoryBlobs()
        nothing = cast(Any, None)
        compiled = Compiled(df=nothing, outputs=outputs, branches=(), leaves=LEAVES)
        identity = PipelineIdentity(name="orders", structure=STRUCTURE, leaves=LEAVES)
        self._declared = DeclaredPipeline(
            compiled=compiled, identity=identity, settings=PipelineSettings(digests=False)
        )
        self._sinks = PipelineSinks(self._declared)

    def open(self) -> CheckpointStore:
        return CheckpointStore(self.blobs, ObjectLayout())

    def start(self, machine: str) -> tuple[CheckpointStore, StartingPoint]:
        store = self.open()
        place = LocalCopy(self._base / machine)
        return store, Recovery(self._declared, store, self._sinks, place=place).run()

    def run(self, machine: str, *files: str) -> None:
        """Start, and run one epoch on each of these files."""
        store, recovered = self.start(machine)
        copy, line = recovered.copy, recovered.history
        copy.write("metadata", b'{"id":"x"}')
        for file in files:
            batch = line.newest.epoch if line.newest is not None else 0
            plan = plan_of(batch, file)
            install_plan(copy, batch, plan)
            entry = parse_offsets(plan.offsets)
            epoch = RunningEpoch(
                identity=self._declared.identity,
                timeline=line.timeline,
                batch=batch,
                entry=entry,
                plan=plan,
                attempt=new_attempt(1, "t"),
            )
            if functions := functions_in(self._sinks.outputs, self._declared.identity):
                store_plan(store, epoch, line, functions, 0)
            copy.write(f"commits/{batch}", b"v1\n{}")
            line.newest = store.save(self._checkpoint(line.next_id, epoch, copy))
            line.next_id += 1

    def _checkpoint(self, checkpoint_id: int, epoch: RunningEpoch, copy: Any) -> CheckpointManifest:
        logs = {path: copy.read(path) for path in copy.files_below(".")}
        pack = PackBuilder()
        pack.add_all(list(logs), list(logs.values()), compress=True)
        return CheckpointManifest.new(
            checkpoint_id,
            epoch=epoch.number,
            wal_position=epoch.batch,
            operator_states={LOG: OperatorCheckpoint.inline(b"".join(pack.finish()))},
        ).with_extra(fingerprint=epoch.fingerprint, leaves=list(LEAVES), structure=STRUCTURE)


def function() -> Output:
    sink = ForeachBatchSink(lambda _, __: None, idempotent=True, name="f")
    return Output("rows", cast(Any, None), sink)


def test_what_was_planned_and_not_decided_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run("one", "a", "b")
    _, recovered = world.start("one")
    install_plan(recovered.copy, 2, plan_of(2, "c"))
    _, recovered = world.start("one")
    assert recovered.copy.read_text("sources/0/2") == "v1\nc"


def test_a_directory_of_a_history_that_was_given_up_plans_nothing_for_the_next_one(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.run("one", "a", "b", "c", "d")
    roll_back(world.open(), 2, "orders")
    world.run("another", "c and d")
    _, recovered = world.start("one")
    assert recovered.history.newest is not None
    assert recovered.history.newest.epoch == 3
    # epoch 4 of the old history read d, which epoch 3 of the new one has read
    assert recovered.copy.batches("offsets")[-1] == 2
    assert recovered.copy.read_text("sources/0/2") == "v1\nc and d"
    assert recovered.copy.read_text("sources/0/3") is None


@pytest.mark.parametrize("left", [b"{", None], ids=["damaged", "gone"])
def test_a_function_gets_no_epoch_again_whose_plans_were_pruned(
    tmp_path: Path, left: bytes | None
) -> None:
    world = World(tmp_path, (function(),))
    world.run("one", "a", "b", "c", "d")
    store = world.open()
    store.claim()
    store.pin("old", 1)
    store.prune(1)
    newest = "manifests/manifest-000004.json"
    world.blobs.delete([newest, "manifests/latest.json"])
    if left is not None:
        world.blobs.create(newest, left)
    # the directory knows what epoch 2 read, and could not keep epoch 3 from reading all the rest
    with pytest.raises(LineageError, match="epoch 2 may have been decided before"):
        world.start("one")


def test_a_start_that_meets_damage_says_where_and_what_can_be_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run("one", "a")
    store, recovered = world.start("one")
    newest = recovered.history.newest
    assert newest is not None
    store.save(newest.replace(checkpoint_id=2, wal_position=2**62))  # as nobody has run it
    store.close()
    with pytest.raises(DamageError, match=f"lacks 'offsets/{2**62}'") as caught:
        world.start("one")
    assert "checkpoint 2" in (caught.value.where or "")
    assert "roll the pipeline back" in (caught.value.hint or "")
