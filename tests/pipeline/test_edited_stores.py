"""A start that builds on a checkpoint which somebody has edited says so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import open_store
from seamark._common.json_documents import seal
from seamark.manifest.decisions import decision_of
from tests.pipeline.support.crashing import crash, wipe
from tests.pipeline.support.workloads import run, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def edit(folder: Path, number: int) -> None:
    """Change what a checkpoint has decided, with digests of its own that fit."""
    with open_store(folder / "store") as store:
        manifest = store.load_by_id(number)
    assert manifest is not None
    edited = manifest.replace(next_watermark=1, self_checksum=None)
    edited = edited.replace(decision=decision_of(edited))
    path = folder / f"store/checkpoints/checkpoint_{number:06}/manifest.json"
    path.write_bytes(seal(edited.to_json()))


def test_a_start_that_builds_on_an_edited_checkpoint_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, kind = write_input(tmp_path / "input", 4), "stateless-one-sink"
    options: dict[str, Any] = {"keep": 20, "full_every": 10}
    crash(spark, kind, "hdfs", folder, tmp_path, "record:after:3", **options)
    edit(tmp_path, 2)
    wipe(tmp_path)
    with caplog.at_level(logging.WARNING, "seamark.pipeline"):
        report = run(spark, kind, "hdfs", folder, tmp_path, **options).report
    found = "checkpoint 2, which this start builds on, was edited: it is not the one that was"
    assert any(note.startswith(found) for note in report.notes)
    assert found in caplog.text
