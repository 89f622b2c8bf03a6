"""Why an epoch came out different: the likely reasons first, and nothing that is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import CheckpointManifest, open_store
from seamark.capture.state_comparison import StateComparison
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, RefusedError
from seamark.manifest import OperatorCheckpoint
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.running_epoch import fingerprint
from seamark.pipeline.replay.explanations import changes_since, compared
from seamark.pipeline.replay.recorded_epochs import EpochToReplay, epoch_to_replay
from seamark.pipeline.replay.result import Agreement, OutputComparison, Replay
from seamark.pipeline.replay.scratch import rebuild, recorded_plan
from seamark.spark.row_digests import RowDigest
from seamark.state.pack import PackBuilder
from seamark.store.index_parts import LOG

ONE, OTHER = RowDigest(3, "0" * 32), RowDigest(3, "1" * 32)
STRUCTURE = {
    "name": "shop",
    "output_mode": "append",
    "state_partitions": 2,
    "sources": {"orders": {"format": "json", "options": {}}},
    "sinks": {"all": {"kind": "files", "target": "/all", "options": {}, "columns": []}},
    "operators": ["all: aggregation"],
}


def outcome(recorded: RowDigest | None, replayed: RowDigest | None, **more: object) -> object:
    known: dict[str, object] = {"changes": [], "sources": [], "unrepeatable": []}
    return compared(recorded, replayed, **{**known, **more})  # type: ignore[arg-type]


def test_equal_rows_need_no_reason() -> None:
    found = outcome(ONE, ONE, changes=["a"], sources=["b"], unrepeatable=["c"])
    assert found == OutputComparison(recorded=ONE, replayed=ONE)


def test_lost_rows_come_before_changed_code_and_that_before_chance() -> None:
    found = compared(ONE, OTHER, changes=["x → y"], sources=["gone"], unrepeatable=["rand()"])
    assert found.agreement is Agreement.DIFFERS
    assert found.reasons == ("gone", "the pipeline has changed: x → y", "rand()")


def test_without_a_known_reason_that_is_said() -> None:
    found = compared(ONE, OTHER, changes=[], sources=[], unrepeatable=[])
    assert found.reasons[0].startswith("nothing that is recorded explains it")


@pytest.mark.parametrize(
    ("recorded", "replayed", "is_new", "words"),
    [
        (None, ONE, False, "nothing to compare with"),
        (None, ONE, True, "had no such output"),
        (ONE, None, False, "have no digest"),
    ],
)
def test_what_cannot_be_compared_says_why(
    recorded: RowDigest | None, replayed: RowDigest | None, is_new: bool, words: str
) -> None:
    found = compared(recorded, replayed, changes=[], sources=[], unrepeatable=[], is_new=is_new)
    assert found.agreement is Agreement.NOT_COMPARED
    assert words in found.reasons[0]


@pytest.mark.parametrize(
    ("outputs", "state", "is_equal"),
    [
        ([(ONE, ONE), (None, ONE)], StateComparison(), True),
        ([(ONE, ONE), (ONE, OTHER)], StateComparison(("a",)), False),
        ([(ONE, ONE)], StateComparison((), ("state/0/0/2.delta",)), True),
        ([(None, ONE)], StateComparison(("a",)), None),
    ],
)
def test_an_epoch_is_equal_if_all_rows_that_were_compared_are(
    outputs: list[tuple[RowDigest | None, RowDigest]],
    state: StateComparison,
    is_equal: bool | None,
) -> None:
    comparisons = {
        f"o{n}": OutputComparison(recorded=old, replayed=new)
        for n, (old, new) in enumerate(outputs)
    }
    again = Replay(epoch=1, checkpoint_id=1, outputs={}, comparisons=comparisons, state=state)
    assert again.is_equal is is_equal
    assert ("other changes in state/0/0/2.delta" in str(again)) == bool(state.differing)


# against the pipeline of then


def identity(**changes: object) -> PipelineIdentity:
    return PipelineIdentity(
        name="shop", structure={**STRUCTURE, **changes}, leaves=("orders",), spark_version="4.3.0"
    )


def decided(**changes: object) -> CheckpointManifest:
    manifest = CheckpointManifest.new(2, epoch=2, batch=1)
    return manifest.with_extra(**{"structure": STRUCTURE, "spark_version": "4.3.0", **changes})


def test_the_number_of_partitions_is_that_of_the_epoch() -> None:
    assert changes_since(decided(), identity(state_partitions=200)) == ()


def test_another_spark_is_told() -> None:
    assert changes_since(decided(spark_version="4.0.1"), identity()) == ("it ran on Spark 4.0.1",)


@pytest.mark.parametrize(
    "changes",
    [
        {"operators": ["all: deduplication"]},
        {"output_mode": "update"},
        {"sources": {"other": {"format": "json", "options": {}}}},
    ],
)
def test_what_does_not_fit_the_state_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match="does not fit the state"):
        changes_since(decided(), identity(**changes))


@pytest.mark.parametrize("structure", [{"sources": 3}, {"operators": "x", "sinks": []}])
def test_a_structure_that_nobody_can_read_is_damage(structure: dict[str, object]) -> None:
    with pytest.raises(DamageError):
        changes_since(decided(structure=structure), identity())


# the plan in a checkpoint


def planned(tmp_path: Path, lines: list[str], **changes: object) -> tuple[Path, Path]:
    """A store with one checkpoint whose plan has these lines."""
    text = "\n".join(["v1", '{"batchWatermarkMs":0}', *lines])
    files = {"offsets/0": text, "sources/0/0": 'v1\n{"path":"file:/a","timestamp":1,"batchId":0}'}
    builder = PackBuilder()
    for path, content in files.items():
        builder.add(path, content.encode())
    pack = b"".join(builder.finish())
    manifest = CheckpointManifest.new(
        1, epoch=1, batch=0, operator_states={LOG: OperatorCheckpoint.inline(pack)}
    )
    with open_store(tmp_path / "store") as store:
        store.claim()
        timeline = store.owner().timeline
        own = fingerprint(timeline, lines, {"sources/0/0": files["sources/0/0"]})
        store.save(manifest.with_extra(**{"fingerprint": own, "leaves": ["orders"], **changes}))
    return tmp_path / "store", tmp_path / "scratch"


def test_the_plan_of_an_earlier_store_is_put_into_an_empty_directory(tmp_path: Path) -> None:
    root, folder = planned(tmp_path, ['{"logOffset":0}'])
    with open_store(root) as store:
        found = epoch_to_replay(store, 1)
        plan = recorded_plan(store, found.decided, LocalCopy(folder / "plan"), [0])
        copy = LocalCopy(folder / "copy")
        rebuild(store, found, plan, copy, identity())
    assert sorted(copy.files_below(".")) == ["metadata", "offsets/0", "sources/0/0"]
    assert copy.read_text("offsets/0") == plan.plan.offsets


def test_a_plan_that_is_not_that_of_the_epoch_is_damage(tmp_path: Path) -> None:
    root, folder = planned(tmp_path, ['{"logOffset":0}'], fingerprint="0" * 64)
    with open_store(root) as store:
        found = epoch_to_replay(store, 1)
        with pytest.raises(DamageError, match="is not the one that epoch 1 ran on"):
            recorded_plan(store, found.decided, LocalCopy(folder), [0])


def test_each_replay_has_a_query_of_its_own(tmp_path: Path) -> None:
    root, folder = planned(tmp_path, ['{"logOffset":0}'])
    ids = set()
    with open_store(root) as store:
        found: EpochToReplay = epoch_to_replay(store, 1)
        for number in range(2):
            plan = recorded_plan(store, found.decided, LocalCopy(folder / f"p{number}"), [0])
            copy = LocalCopy(folder / f"c{number}")
            rebuild(store, found, plan, copy, identity())
            ids.add(copy.read_text("metadata"))
    assert len(ids) == 2
