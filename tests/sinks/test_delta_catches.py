"""The attacks are worth something: a Delta table withstands each, and a broken sink falls to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.support import delta_attacks
from tests.sinks.support.broken_deltas import FALLS_TO, Broken
from tests.sinks.support.delta_attacks import ATTACKS, Attack, DeltaWorld

LONG = (delta_attacks.others_may_write_at_any_time,)


def marks(attack: Attack) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if attack in LONG else []


@pytest.mark.parametrize(
    "attack", [pytest.param(one, id=one.__name__, marks=marks(one)) for one in ATTACKS]
)
def test_a_delta_table_withstands(tmp_path: Path, attack: Attack) -> None:
    attack(DeltaWorld(tmp_path / "rows"))


@pytest.mark.parametrize(
    ("attack", "broken"),
    [
        pytest.param(attack, broken, id=f"{broken.__name__}-{attack.__name__}", marks=marks(attack))
        for attack, broken in FALLS_TO
    ],
)
def test_a_broken_sink_falls_to(tmp_path: Path, attack: Attack, broken: Broken) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it fell by
        attack(DeltaWorld(tmp_path / "rows", broken))
    assert not isinstance(caught.value, TypeError | AttributeError | NameError | KeyError)


def test_for_every_attack_there_is_a_sink_that_falls_to_it() -> None:
    assert {attack for attack, _ in FALLS_TO} == {*ATTACKS}
