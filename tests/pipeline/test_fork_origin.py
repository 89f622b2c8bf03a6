"""A fork is compared with all of its origin but the places, and never writes where that writes."""

from __future__ import annotations

import msgspec
import pytest

from seamark.errors import RefusedError
from seamark.limits import MOST_ORIGIN_TARGETS
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import is_first_of_fork
from seamark.manifest.origins import ForkOrigin
from seamark.pipeline.declaration.compatibility import Compatibility, check_checkpoint
from seamark.pipeline.declaration.fork_origin import origin_of, require_apart, without_places
from seamark.pipeline.declaration.structure import PipelineIdentity, Structure
from tests.pipeline.support.forks import structure


def identity(declared: Structure, consumer_group: str | None = None) -> PipelineIdentity:
    return PipelineIdentity(
        name=declared["name"],
        structure=declared,
        leaves=("trades",),
        consumer_group=consumer_group,
    )


def origin_with(*targets: tuple[str, str], pipelines: tuple[str, ...] = ("trades",)) -> ForkOrigin:
    return ForkOrigin(
        url="/origin",
        checkpoint_id=58,
        timeline="t",
        epoch=57,
        pipelines=pipelines,
        targets=targets,
        consumer_groups=("shop",),
    )


def first() -> CheckpointManifest:
    return CheckpointManifest.new(
        1,
        epoch=57,
        structure=without_places(structure()),
        fork=msgspec.to_builtins(origin_with()),
        leaves=["trades"],
    )


def test_name_and_places_of_sinks_are_the_forks_own() -> None:
    declared = structure("trades-v2", "/data/bars-v2")
    assert is_first_of_fork(first())
    check = check_checkpoint(first(), identity(declared), "strict")
    assert check.fit is Compatibility.SAME


def test_whatever_else_differs_is_refused_as_at_any_start_and_named() -> None:
    declared = structure("trades-v2", "/data/bars-v2")
    declared["sinks"]["bars"]["columns"] = [["k", "bigint"]]
    check = check_checkpoint(first(), identity(declared), "strict")
    assert check.fit is Compatibility.REFUSED
    assert not any("target" in change or "name" in change for change in check.changes)


def test_a_later_checkpoint_of_a_fork_is_compared_with_its_places() -> None:
    declared = structure("trades-v2", "/data/bars-v2")
    later = first().with_extra(structure=declared)
    assert not is_first_of_fork(later)
    moved = structure("trades-v2", "/data/bars-v3")
    assert check_checkpoint(later, identity(moved), "strict").fit is Compatibility.REFUSED


def test_a_target_of_the_origin_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="sink 'bars'"):
        require_apart(origin_with(("files", "/data/bars")), identity(structure("v2")))
    require_apart(origin_with(("files", "/data/other")), identity(structure("v2")))


def test_the_name_and_the_consumer_group_of_the_origin_are_refused() -> None:
    with pytest.raises(RefusedError, match="name of its own"):
        require_apart(origin_with(), identity(structure("trades")))
    with pytest.raises(RefusedError, match="consumer group"):
        require_apart(origin_with(), identity(structure("v2")), "shop")
    require_apart(origin_with(), identity(structure("v2")), "shop-v2")


def test_sinks_that_the_origin_got_later_and_those_of_its_own_origin_are_remembered() -> None:
    older = CheckpointManifest.new(
        3,
        epoch=3,
        structure=structure("b", "/b"),
        consumer_group="group-b",
        timeline="of b",
        fork=msgspec.to_builtins(origin_with(("files", "/a"), pipelines=("a",))),
    )
    newest = structure("b", "/b")
    newest["sinks"]["more"] = {"kind": "key-value", "target": "redis://h/0", "options": {}}
    newest["sinks"]["shown"] = {"kind": "console", "target": "", "options": {}}
    newest["sinks"]["called"] = {"kind": "function", "target": "alert", "options": {}}
    found = origin_of("/b-store", older, CheckpointManifest.new(4, epoch=4, structure=newest))
    assert set(found.targets) == {
        ("files", "/a"),
        ("files", "/b"),
        ("key-value", "redis://h/0?namespace=b/more"),
    }
    assert found.pipelines == ("b", "a")
    assert set(found.consumer_groups) == {"shop", "group-b"}
    assert found.earlier == (("t", 57),)


def test_more_sinks_than_a_checkpoint_can_remember_are_refused() -> None:
    many = structure()
    many["sinks"] = {
        f"s{n}": {"kind": "files", "target": f"/{n}"} for n in range(MOST_ORIGIN_TARGETS + 1)
    }
    with pytest.raises(RefusedError, match="sinks"):
        origin_of("/x", CheckpointManifest.new(1, epoch=1, structure=many), None)
