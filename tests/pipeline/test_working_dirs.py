"""A sink that comes or goes changes the order in which Spark lists the sources."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.recovery.carried_plans import (
    carried_plan,
    reordered,
    timeline_before_upgrade,
)
from seamark.pipeline.recovery.rollback import roll_back
from seamark.pipeline.recovery.working_dirs import ReadyNote, WorkingDirs, reorder_sources
from seamark.spark.batch_log import Plan, parse_offsets
from seamark.store import open_store
from tests.checkpoint_dir.support.directories import offsets_text


def identity(*leaves: str) -> PipelineIdentity:
    return PipelineIdentity(name="p", structure={}, leaves=leaves)


def saved_with(*leaves: str) -> CheckpointManifest:
    return CheckpointManifest.new(1, epoch=1, extra={"leaves": list(leaves)})


def test_every_leaf_gets_the_line_of_its_source() -> None:
    text = offsets_text("at a", "at b", watermark=7)
    again = reordered(text, ["a", "b"], ["b", "a", "b"])
    assert parse_offsets(again).lines == ("at b", "at a", "at b")
    assert parse_offsets(again).watermark_ms == 7


def test_leaves_of_one_source_that_have_come_to_different_places_are_not_taken_for_one(
    tmp_path: Path,
) -> None:
    copy = LocalCopy(tmp_path)
    texts = {0: offsets_text("at 5", "at 5"), 1: offsets_text("at 7", "at 9")}
    for batch, text in texts.items():
        copy.write(f"offsets/{batch}", text.encode())
    with pytest.raises(RefusedError, match="joins a source with itself"):
        reorder_sources(copy, saved_with("a", "a"), identity("a", "a", "a"))
    assert {n: copy.read_text(f"offsets/{n}") for n in texts} == texts
    assert parse_offsets(reordered(texts[0], ["a", "a"], ["a"])).lines == ("at 5",)


def test_the_folders_of_the_sources_follow_their_numbers(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path)
    copy.write("offsets/0", offsets_text("at a", "at b").encode())
    copy.write("sources/0/0", b"log of a")
    copy.write("sources/1/0", b"log of b")
    reorder_sources(copy, saved_with("a", "b"), identity("b", "a"))
    assert copy.read_text("sources/0/0") == "log of b"
    assert copy.read_text("sources/1/0") == "log of a"
    assert parse_offsets(copy.read_text("offsets/0") or "").lines == ("at b", "at a")


def test_nothing_changes_when_the_order_is_the_same(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path)
    copy.write("offsets/0", offsets_text("at a").encode())
    before = copy.read("offsets/0")
    reorder_sources(copy, saved_with("a"), identity("a"))
    assert copy.read("offsets/0") == before


def test_a_source_that_nothing_is_known_about_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="added"):
        reorder_sources(LocalCopy(tmp_path), saved_with("a"), identity("a", "b"))


def test_a_self_join_has_more_folders_than_names_and_is_left_alone(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path)
    copy.write("offsets/0", offsets_text("at a", "at a").encode())
    copy.write("sources/0/0", b"one")
    copy.write("sources/1/0", b"two")
    with pytest.raises(RefusedError, match="itself"):
        reorder_sources(copy, saved_with("a", "a"), identity("a"))


NOTED = b'v1\n{"path":"file:///in/1","timestamp":1,"batchId":1}'


@pytest.mark.parametrize("entry", [None, b"", NOTED[:20], NOTED])
def test_what_a_power_failure_has_left_of_a_plan_is_no_plan(
    tmp_path: Path, entry: bytes | None
) -> None:
    place = LocalCopy(str(tmp_path))
    declared = PipelineIdentity(
        name="p", structure={}, leaves=("in",), input_folders={"in": "file:/in"}
    )
    dirs = WorkingDirs(place, 2, declared)
    copy = place.below("g1")
    copy.write("sources/0/0", NOTED.replace(b"1}", b"0}"))
    for batch in range(2):
        copy.write(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
    if entry is not None:
        copy.write("sources/0/1", entry)
    found = dirs.plans_in(copy, ReadyNote(["in"], "t"), 0, "t")
    assert [*found] == ([1] if entry == NOTED else [])


def test_a_plan_has_its_sources_under_the_numbers_of_now() -> None:
    plan = Plan(offsets_text("at a", "at b"), {"sources/0/0": "began a", "sources/1/0": "began b"})
    carried = carried_plan(plan, ["a", "b"], ["new", "b", "b"])
    assert carried is not None
    assert parse_offsets(carried.offsets).lines == ("-", "at b", "at b")
    assert carried.sources == {"sources/1/0": "began b"}


@pytest.mark.parametrize(
    ("leaves", "lines", "folder"),
    [
        (["a", "a"], ("at 7", "at 9"), 0),
        (["a", "a"], ("at 7", "at 7"), 1),
        (["a"], ("at 7", "at 7"), 0),
    ],
)
def test_a_plan_of_which_it_is_not_known_what_belongs_to_whom_is_not_carried(
    leaves: list[str], lines: tuple[str, ...], folder: int
) -> None:
    plan = Plan(offsets_text(*lines), {f"sources/{folder}/0": "began"})
    assert carried_plan(plan, leaves, ["a", "a", "a"]) is None


def test_a_plan_is_kept_by_an_upgrade_and_by_no_other_new_history(tmp_path: Path) -> None:
    place = LocalCopy(tmp_path)
    copy = place.below("g1")
    copy.write("offsets/0", offsets_text("at a").encode())
    copy.write("offsets/1", offsets_text("at a").encode())
    found = {
        former: [
            *WorkingDirs(place, 2, identity("a", "a"), is_new_history=True, former=former).plans_in(
                copy, ReadyNote(["a"], "before"), 0, "after"
            )
        ]
        for former in ("before", "")
    }
    assert found == {"before": [1], "": []}


def test_a_rollback_to_the_checkpoint_of_an_upgrade_gives_up_what_was_planned(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "store") as store:
        store.claim()
        before = store.save(saved_with("a").replace(state_partitions=4))
        store.begin_timeline()
        upgraded = store.save(
            saved_with("a", "a")
            .replace(checkpoint_id=2, parent_id=1, is_incremental=True, state_partitions=4)
            .with_extra(upgrade={"from": 1})
        )
        assert timeline_before_upgrade(store, upgraded) == before.timeline != upgraded.timeline
        assert timeline_before_upgrade(store, before) == ""
        assert timeline_before_upgrade(store, None) == ""
        assert timeline_before_upgrade(store, upgraded.replace(state_partitions=8)) == ""
        assert timeline_before_upgrade(store, roll_back(store, 2, None)) == ""


@pytest.mark.parametrize(
    ("leaves", "former", "is_refused"),
    [(("in",), "", True), (("in",), "t", False), (("in", "in"), "", False)],
    ids=["unchanged", "by an upgrade", "other outputs"],
)
def test_what_was_planned_in_another_folder_is_planned_again_when_the_pipeline_has_changed(
    tmp_path: Path, leaves: tuple[str, ...], former: str, is_refused: bool
) -> None:
    place = LocalCopy(str(tmp_path))
    declared = PipelineIdentity(
        name="p", structure={}, leaves=leaves, input_folders={"in": "file:/elsewhere"}
    )
    dirs = WorkingDirs(place, 2, declared, is_new_history=bool(former), former=former)
    copy = place.below("g1")
    copy.write("sources/0/0", NOTED.replace(b"1}", b"0}"))
    copy.write("sources/0/1", NOTED)
    for batch in range(2):
        copy.write(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
    with pytest.raises(RefusedError) if is_refused else nullcontext():
        assert dirs.plans_in(copy, ReadyNote(["in"], "t"), 0, "after" if former else "t") == {}
