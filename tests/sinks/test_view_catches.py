"""The attacks are worth something: the view withstands each, and a broken one falls to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.support.broken_views import FALLS_TO, Broken
from tests.sinks.support.view_attacks import ATTACKS, Attack
from tests.sinks.support.views import World


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_view_withstands(world: World, attack: Attack) -> None:
    attack(world)


@pytest.mark.parametrize(
    ("attack", "broken"),
    FALLS_TO,
    ids=[f"{broken.__name__}-{attack.__name__}" for attack, broken in FALLS_TO],
)
def test_a_broken_view_falls_to(
    request: pytest.FixtureRequest, attack: Attack, broken: Broken, tmp_path: Path
) -> None:
    if "in_a_run" in attack.__name__:  # RocksDB does not change under an open handle
        world: World = request.getfixturevalue("redis_world")
    else:
        world = World(f"rocksdb://{tmp_path}/view", None)
    world.kind = broken
    try:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it fell by
            attack(world)
    finally:
        world.close()
    assert not isinstance(caught.value, TypeError | AttributeError | NameError | KeyError)


def test_for_every_attack_there_is_a_view_that_falls_to_it() -> None:
    assert {attack for attack, _ in FALLS_TO} == {*ATTACKS}
