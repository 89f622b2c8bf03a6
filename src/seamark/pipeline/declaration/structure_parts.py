"""A structure in the parts that a start compares, each in its own way.

Tests: ``tests/pipeline/test_compatibility.py``.
"""

from __future__ import annotations

from typing import Any

from seamark.pipeline.declaration.computed_changes import Computes
from seamark.pipeline.declaration.structure import Structure
from seamark.spark.plans.computation import FORM
from seamark.spark.plans.lossy_options import may_lose_of
from seamark.spark.plans.parsing_options import PARSING, parsing_in
from seamark.spark.plans.value_settings import SETTINGS


class StructureParts:
    """What is compared of a structure; what is left of it is its topology."""

    def __init__(self, structure: Structure) -> None:
        rest = dict(structure)
        self.form, self.settings = rest.pop("form", None), rest.pop(SETTINGS, None)
        computes = rest.pop("computes", None)
        shares, reads = rest.pop("shares", None), rest.pop("reads", None)
        self.reads: dict[str, Any] = reads if isinstance(reads, dict) else {}
        self.shares: dict[str, Any] | None = shares if isinstance(shares, dict) else None
        # texts of another form are not compared, nor has anybody looked at them
        self.computes: Computes = computes if computes and self.form == FORM else {}
        sources = rest.get("sources", {})
        self.may_lose = {name: may_lose_of(source) for name, source in sources.items()}
        self.parsing = {name: parsing_in(source) for name, source in sources.items()}
        rest["sources"] = {name: _without_losses(source) for name, source in sources.items()}
        # what Spark 4.0 calls its operator is the same one
        rest["operators"] = [
            str(operator).replace("transformWithStateInPandas", "transformWithState")
            for operator in rest.get("operators", [])
        ]
        self.topology: Structure = rest


def _without_losses(source: Any) -> Any:
    if not isinstance(source, dict):
        return source
    return {key: value for key, value in source.items() if key not in ("may_lose", PARSING)}
