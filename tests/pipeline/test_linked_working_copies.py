"""A store of unknown origin may hold links in the place of working copies: none is followed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark import open_store
from seamark.capture.restore import difference
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import StoreUnavailableError
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.recovery.working_dirs import WorkingDirs, working_place
from seamark.pipeline.telemetry.progress_record import progress_url
from tests.checkpoint_dir.support.directories import make_copy

IDENTITY = PipelineIdentity(name="p", structure={}, leaves=("a",))
IN_ONE_PROCESS: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
"""All that is asked of a session where working copies are local."""


@pytest.fixture
def victim(tmp_path: Path) -> LocalCopy:
    return make_copy(tmp_path / "victim", 3)


@pytest.fixture
def place(tmp_path: Path, victim: LocalCopy) -> LocalCopy:
    """Working copies of a store, the first of which is a link to the victim, with its note."""
    (tmp_path / "working").mkdir()
    (tmp_path / "working/g1").symlink_to(victim.root)
    (tmp_path / "working/g1.json").write_text('{"leaves":["a"],"timeline":""}')
    return LocalCopy(tmp_path / "working")


def contents(copy: LocalCopy) -> dict[str, bytes]:
    return {path: copy.read(path) for path in copy.files_below(".")}


def test_a_link_in_the_place_of_a_working_copy_is_never_taken_for_one(
    place: LocalCopy, victim: LocalCopy
) -> None:
    before = contents(victim)
    for generation in (1, 2):
        dirs = WorkingDirs(place, generation, IDENTITY)
        assert dirs.newest_ready() is None
        assert dirs.first_plans("") == {}
    assert contents(victim) == before


def test_nothing_is_done_through_a_link_in_the_place_of_a_working_copy(
    place: LocalCopy, victim: LocalCopy
) -> None:
    before = contents(victim)
    linked = place.below("g1")
    assert difference(linked, {}, 2) == "there is none"
    assert linked.foreign() == "."
    for attempt in (
        lambda: linked.write("metadata", b"x"),
        lambda: linked.remove("metadata"),
        lambda: linked.read("metadata"),
        lambda: list(linked.stream("metadata")),
        lambda: linked.names("."),
        lambda: list(linked.files_below(".")),
        lambda: list(linked.digests(["metadata"])),
        lambda: linked.rename("metadata", "other"),
        lambda: linked.remove_where(".", lambda name: True),
        linked.make,
    ):
        with pytest.raises(StoreUnavailableError, match="is a link"):
            attempt()
    assert contents(victim) == before


def test_only_the_link_is_removed_where_a_working_copy_is_to_be_made(
    place: LocalCopy, victim: LocalCopy
) -> None:
    before = contents(victim)
    dirs = WorkingDirs(place, 1, IDENTITY)
    dirs.clear_own()
    dirs.own.write("metadata", b"new")
    assert place.below("g1").read("metadata") == b"new"
    assert contents(victim) == before


def test_a_link_of_an_earlier_generation_goes_without_what_it_leads_to(
    place: LocalCopy, victim: LocalCopy
) -> None:
    before = contents(victim)
    dirs = WorkingDirs(place, 2, IDENTITY)
    dirs.own.make()
    dirs.remove_others()
    assert sorted(place.names(".")) == ["g2"]
    assert contents(victim) == before


def test_a_copy_with_a_link_inside_is_not_used(place: LocalCopy, victim: LocalCopy) -> None:
    copy = make_copy(Path(place.root, "g2"), 3)
    place.write("g2.json", b'{"leaves":["a"],"timeline":""}')
    dirs = WorkingDirs(place, 2, IDENTITY)
    assert dirs.newest_ready() is not None
    for batch in copy.batches("offsets"):
        copy.remove(f"offsets/{batch}")
    Path(copy.path("offsets")).rmdir()
    Path(copy.path("offsets")).symlink_to(victim.path("offsets"))
    assert dirs.newest_ready() is None


def test_working_copies_beside_a_store_are_not_reached_through_a_link(
    tmp_path: Path, victim: LocalCopy
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/working").symlink_to(victim.root)
    with open_store(tmp_path / "store") as store:
        with pytest.raises(StoreUnavailableError, match="working is a link"):
            working_place(store, "p", None, IN_ONE_PROCESS)
        # a folder that the user names may be one; the store's own folder in it may not
        place = working_place(store, "p", tmp_path / "store/working", IN_ONE_PROCESS)
        place.make()
        (tmp_path / "other").mkdir()
        Path(place.root).rmdir()
        Path(place.root).symlink_to(tmp_path / "other")
        with pytest.raises(StoreUnavailableError, match="link"):
            place.write("g1.json", b"{}")
        with pytest.raises(StoreUnavailableError, match="link"):
            WorkingDirs(place, 1, IDENTITY).copies()
        assert list((tmp_path / "other").iterdir()) == []


def test_the_folder_that_the_user_names_may_be_a_link(tmp_path: Path, victim: LocalCopy) -> None:
    (tmp_path / "named").symlink_to(victim.root)
    named = LocalCopy(tmp_path / "named")
    assert named.exists()
    assert named.foreign() is None
    assert named.batches("offsets") == [0, 1, 2]
    named.below("g1").write("metadata", b"x")
    assert victim.read("g1/metadata") == b"x"


def test_a_link_in_the_place_of_the_progress_record_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="p")
        (tmp_path / "store" / "progress").symlink_to(tmp_path / "victim")
        with pytest.raises(StoreUnavailableError, match="links are not followed here"):
            progress_url("auto", store)
    assert list((tmp_path / "victim").iterdir()) == []
