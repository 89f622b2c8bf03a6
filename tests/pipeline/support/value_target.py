"""A target that values go to, and how a user reads them again."""

from __future__ import annotations

import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.support.plain_values import (
    Row,
)
from tests.pipeline.support.random_values import Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from seamark.sinks import Sink


@dataclass(frozen=True)
class Services:
    """Servers, by their addresses; without one, its sinks are left out."""

    postgres: Callable[[], str] | None = None
    """Makes a database."""
    redis: str | None = None
    kafka: str | None = None
    """Address and topic, with a slash between."""


class Target(ABC):
    """Where the rows of one case go."""

    def __init__(
        self, spark: SparkSession, case: Case, schema: StructType, root: Path, services: Services
    ) -> None:
        self.spark, self.case, self.schema = spark, case, schema
        self.root, self.services = root, services
        self.dice = random.Random(case.choices)
        self.name = uuid.uuid4().hex
        self.kinds: dict[str, DataType] = {each.name: each.dataType for each in schema.fields}

    @abstractmethod
    def sink(self) -> Sink:
        """The sink; what it needs is made."""

    def unreadable(self) -> bool:
        """Whether docs/ say of a value of the case that this reader cannot read it."""
        return False

    @abstractmethod
    def rows(self) -> list[Row]:
        """What a reader sees."""

    def missed(self) -> list[str]:
        """Conditions by which a reader does not find all rows that meet them."""
        return []

    def stock(self, df: DataFrame) -> list[Row] | None:
        """What a reader sees of what stock Spark writes, where a format does not keep all."""
        return None

    def same_key(self, value: Any) -> Any:
        """What is equal for values of one key."""
        return value

    def kept(self, name: str, value: Any) -> Any:
        """What docs/ say that the target makes of a value of a column."""
        return value
