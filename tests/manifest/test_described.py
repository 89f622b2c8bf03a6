"""What a manifest says about its sinks and sources is read whatever stands there."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.manifest import CheckpointManifest
from seamark.manifest.described import described


@pytest.mark.parametrize(
    ("structure", "names"),
    [
        (None, []),
        ({}, []),
        ({"sinks": None}, []),
        ({"sinks": 1}, []),
        ({"sinks": "bars"}, []),
        ({"sinks": [["bars", {}]]}, []),
        ({"sinks": {"bars": {"kind": "files"}, "odd": 1, "odder": ["kind"]}}, ["bars"]),
    ],
)
def test_what_is_not_described_by_an_object_is_left_out(structure: Any, names: list[str]) -> None:
    manifest = CheckpointManifest.new(1, epoch=1, structure=structure)
    assert list(described(manifest, "sinks")) == names
    assert described(manifest, "sources") == {}
