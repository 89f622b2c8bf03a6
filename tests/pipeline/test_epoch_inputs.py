"""Two epochs have the same input exactly if they have read the same rows, in any timeline."""

from __future__ import annotations

from typing import Any

from seamark.manifest import CheckpointManifest
from seamark.pipeline.epoch.epoch_inputs import inputs_of
from seamark.pipeline.epoch.epoch_manifest import source_offsets
from seamark.spark.batch_log import Plan


def after(leaves: list[str], lines: list[str]) -> CheckpointManifest:
    return CheckpointManifest.new(1, epoch=1, source_offsets=source_offsets(leaves, lines, 1))


def kafka(start: int | None, end: int) -> Any:
    before = None if start is None else after(["k"], [f'{{"t":{{"0":{start}}}}}'])
    return inputs_of(["k"], [f'{{"t":{{"0":{end}}}}}'], Plan(""), before)["k"]


def files(offset: int, *entries: str) -> Any:
    logged = {f"sources/0/{n}": text for n, text in enumerate(entries)}
    return inputs_of(["f"], [f'{{"logOffset":{offset}}}'], Plan("", logged), None)["f"]


def test_rows_between_two_positions_are_told_apart_by_both() -> None:
    assert kafka(10, 20) == kafka(10, 20)
    assert kafka(10, 20)["read"] != kafka(11, 20)["read"]
    assert kafka(10, 20)["read"] != kafka(10, 21)["read"]
    assert kafka(10, 20)["at"] == kafka(5, 20)["at"]
    assert kafka(None, 20)["read"] != kafka(10, 20)["read"]


def test_files_are_told_apart_by_what_they_are_and_have_no_position() -> None:
    assert files(3, "a.json") == files(7, "a.json")
    assert files(3, "a.json") != files(3, "b.json")
    assert "at" not in files(3, "a.json")


def test_the_order_of_the_outputs_makes_no_difference() -> None:
    plan = Plan("", {"sources/0/1": "a", "sources/1/1": "b"})
    turned = Plan("", {"sources/1/1": "a", "sources/0/1": "b"})
    lines = ['{"logOffset":1}', '{"logOffset":1}']
    assert inputs_of(["x", "y"], lines, plan, None) == inputs_of(["y", "x"], lines, turned, None)
