"""The name by which a target knows a renamed output: decided from a checkpoint. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.target_names import (
    has_same_target,
    kept_targets,
    target_names,
)


def sinks(**targets: str) -> dict[str, dict[str, Any]]:
    return {name: {"kind": "files", "target": target} for name, target in targets.items()}


def checkpoint(names: dict[str, str] | None = None, **targets: str) -> CheckpointManifest:
    made = CheckpointManifest.new(1, epoch=1)
    return made.with_extra(structure={"sinks": sinks(**targets)}, target_names=names)


def test_an_output_that_was_never_renamed_has_its_own_name() -> None:
    assert target_names(None, sinks(bars="/b")) == {}
    assert target_names(checkpoint(bars="/b"), sinks(bars="/b", more="/m")) == {}


def test_a_renamed_output_keeps_the_name_that_its_target_has_noted() -> None:
    renames = {"bars": "candles"}
    names = target_names(checkpoint(bars="/b"), sinks(candles="/b"), renames)
    assert names == {"candles": "bars"}
    after = checkpoint(names, candles="/b")
    # with renames= still there, without it, and renamed again
    assert target_names(after, sinks(candles="/b"), renames) == names
    assert target_names(after, sinks(candles="/b")) == names
    assert target_names(after, sinks(ticks="/b"), {"candles": "ticks"}) == {"ticks": "bars"}
    assert target_names(after, sinks(bars="/b"), {"candles": "bars"}) == {}


def test_at_a_new_target_an_output_has_its_own_name() -> None:
    after = checkpoint({"candles": "bars"}, candles="/b")
    assert target_names(after, sinks(candles="/other")) == {}
    assert target_names(checkpoint(bars="/b"), sinks(candles="/c"), {"bars": "candles"}) == {}


def test_outputs_that_exchange_their_names_keep_their_targets() -> None:
    exchange = {"a": "b", "b": "a"}
    before, now = checkpoint(a="/a", b="/b"), sinks(a="/b", b="/a")
    names = target_names(before, now, exchange)
    assert names == {"a": "b", "b": "a"}
    assert target_names(checkpoint(names, a="/b", b="/a"), now, exchange) == names
    assert kept_targets(sinks(a="/a", b="/b"), now, exchange) == {"a": "b", "b": "a"}


def test_no_other_output_may_have_a_name_that_a_target_still_knows() -> None:
    after = checkpoint({"candles": "bars"}, candles="/b")
    with pytest.raises(RefusedError, match="the output 'bars' cannot have that name") as refused:
        target_names(after, sinks(candles="/b", bars="/new"))
    assert "give 'candles' a new target" in str(refused.value)


@pytest.mark.parametrize("name", ["../bars", "", "a/b", ".."])
def test_a_name_that_could_lead_elsewhere_is_damage(name: str) -> None:
    with pytest.raises(DamageError, match="in a way that no output can have"):
        target_names(checkpoint({"candles": name}, candles="/b"), sinks(candles="/b"))


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        ({"ledger": "a"}, {"ledger": "a"}, True),
        ({"ledger": "a"}, {"ledger": "b"}, False),
        ({}, {"ledger": "b"}, True),  # not recorded by the Seamark that made the checkpoint
    ],
)
def test_a_sink_with_another_ledger_has_another_target(
    before: dict[str, Any], now: dict[str, Any], is_same: bool
) -> None:
    old, new = ({"kind": "kafka", "target": "t", "options": each} for each in (before, now))
    assert has_same_target(old, new) is is_same
