"""A trigger that cannot be used fences nobody: it is refused before the store is claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks import FileSink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm


@pytest.mark.parametrize(
    ("trigger", "error", "told"),
    [
        ({"realTime": "5 seconds"}, RefusedError, "cannot run with the trigger realTime"),
        ({"continuous": "1 second"}, RefusedError, "cannot run with the trigger continuous"),
        ({"processingTime": "soon"}, InvalidInputError, "trigger cannot be used.*interval"),
        ({"never": True}, InvalidInputError, "trigger cannot be used.*never"),
        ({"once": True, "availableNow": True}, InvalidInputError, "trigger cannot be used"),
    ],
)
def test_a_trigger_that_cannot_be_used_is_refused_before_the_claim(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any], error: type, told: str
) -> None:
    (tmp_path / "in").mkdir()
    p = Pipeline("numbers", tmp_path / "store", progress=None)
    numbers = p.source("in", spark.readStream.schema("v int").json(str(tmp_path / "in")))
    p.sink("out", numbers, FileSink(tmp_path / "out"))
    with pytest.raises(error, match=told):
        p.start(trigger=trigger)
    with open_store(tmp_path / "store") as store:
        assert store.owner().generation == 0
