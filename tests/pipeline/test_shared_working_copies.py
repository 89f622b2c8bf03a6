"""One folder for the working copies of several pipelines: each goes on as if it were alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.pipeline.recovery.working_dirs import working_place
from tests.pipeline.support.workloads import EPOCHS, KINDS, pipeline, shown
from tests.pipeline.test_linked_working_copies import IN_ONE_PROCESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.warm
def test_a_pipeline_that_starts_in_the_folder_of_one_that_runs_leaves_its_working_copy_alone(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    """They are one program that keeps two stores, so all names in it are the same."""

    def declared(place: str, **options: Any) -> Pipeline:
        session = spark if place == "first" else spark.newSession()
        options["working_copy"] = tmp_path / "copies"
        return pipeline(session, "windowed", "hdfs", input_folder, tmp_path / place, **options)

    def run_the_other(step: Any, when: str, epoch: int) -> None:
        if (step.value, when, epoch) == ("write", "before", 2):
            declared("second").run()

    declared("first", on_step=run_the_other).run()
    assert declared("second").run().report.working_copy.startswith("kept")
    again = declared("first").run()
    assert again.report.working_copy.startswith("kept")
    assert again.epoch >= EPOCHS
    assert shown(tmp_path / "first") == shown(tmp_path / "second") != {}


@pytest.mark.warm
def test_a_fork_may_have_its_working_copy_in_the_folder_of_its_origin(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def declared(name: str, **options: Any) -> Pipeline:
        copies = tmp_path / "copies"
        p = Pipeline(name, tmp_path / name / "store", working_copy=copies, **options)
        KINDS["windowed"](p, spark, input_folder, tmp_path / name)
        return p

    declared("origin").run()
    fork = declared("fork", fork=tmp_path / "origin/store").run()
    assert fork.report.working_copy.startswith("rebuilt")
    for name in ("origin", "fork"):
        assert declared(name).run().report.working_copy.startswith("kept")


@pytest.mark.parametrize("given", ["", "copies"])
def test_buckets_of_one_name_at_two_services_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def root(host: str) -> str:
        options = {"endpoint": f"https://{host}.example", "region": "r", "skip_signature": "true"}
        with open_store("s3://bucket/shop", storage_options=options) as store:
            return working_place(store, "shop", given or None, IN_ONE_PROCESS).root

    assert root("one") != root("two")
    assert root("one") == root("one")
