"""The input that all pipelines of these tests read, and what they show when nothing happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.support.upgrades import Counting, World
from tests.pipeline.support.workloads import Uninterrupted, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def input_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the sources read; nobody changes them."""
    return write_input(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="session")
def uninterrupted(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Uninterrupted:
    """What the sinks of a kind show after a run without a crash."""
    return Uninterrupted(spark, input_folder, tmp_path_factory.mktemp("uninterrupted"))


@pytest.fixture
def counting(spark: SparkSession, input_folder: Path, tmp_path: Path) -> Counting:
    """Pipelines that count, on a store and sinks of their own."""
    return Counting(World(spark, input_folder, tmp_path, "windowed"))
