"""Suite and attacks are worth something: a sound table withstands each, a broken one falls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from seamark.testing import SinkSuite
from seamark.testing.conformance.sink_examples import Writer
from tests.sinks.support.broken_tables import FALLS_TO, Broken
from tests.sinks.support.frames import failing_frame, frame
from tests.sinks.support.postgres import ROWS, STATEMENTS, run
from tests.sinks.support.postgres_attacks import ATTACKS, Attack, HandWrittenTable, TableWorld

RULES = sorted(name.removeprefix("test_") for name in dir(SinkSuite) if name.startswith("test_"))


@pytest.fixture
def dsn(empty_database: str) -> str:
    run(empty_database, ROWS)
    return empty_database


class TableSuite(SinkSuite):
    overlaps = 7
    overlap_calls = STATEMENTS
    patience = 0.1


def call(rule: str, world: TableWorld) -> None:
    """Run one test of the suite on a sink of this kind."""
    fixtures: dict[str, Any] = {
        "writer": Writer(
            lambda: world.kind(world.dsn, "rows", epoch_column="at_epoch"),
            frame,
        ),
        "visible": world.rows,
        "failing_frame": failing_frame,
    }
    test: Callable[..., None] = getattr(TableSuite(), f"test_{rule}")
    test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


def name_of(one: Attack | str) -> str:
    return one if isinstance(one, str) else one.__name__


@pytest.mark.parametrize("rule", RULES)
def test_a_table_keeps_the_rule(rule: str, dsn: str) -> None:
    call(rule, TableWorld(dsn, HandWrittenTable))


@pytest.mark.parametrize("attack", ATTACKS, ids=name_of)
def test_a_table_withstands(attack: Attack, dsn: str) -> None:
    attack(TableWorld(dsn))


@pytest.mark.slow
@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("attack", "broken"),
    FALLS_TO,
    ids=[f"{broken.__name__}-{name_of(one)}" for one, broken in FALLS_TO],
)
def test_a_broken_sink_falls_to(attack: Attack | str, broken: Broken, dsn: str) -> None:
    world = TableWorld(dsn, broken)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it fell by
        call(attack, world) if isinstance(attack, str) else attack(world)
    assert not isinstance(caught.value, TypeError | AttributeError | NameError | KeyError)
    assert not isinstance(caught.value, pytest.skip.Exception)


def test_for_every_attack_there_is_a_sink_that_falls_to_it() -> None:
    assert {one for one, _ in FALLS_TO if not isinstance(one, str)} == {*ATTACKS}
