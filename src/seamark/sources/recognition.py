"""Finds Seamark's sources in a plan, and refuses what older Sparks cannot do with them.

Tests: ``tests/sources/test_on_spark.py``.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import RefusedError
from seamark.sources.position_looks import PositionLook
from seamark.spark.plans.plan import leaves
from seamark.spark.session import spark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.sources.sequenced import SequencedSource

ADMISSION_CONTROL: Final = (4, 2)
"""The first Spark in which a Python source can be read to its present end in several epochs."""
ORIGIN: Final = "origin"
"""The name under which a checkpoint has the id of what such a source reads."""


def refuse_endings(spark: SparkSession, df: DataFrame, trigger: Mapping[str, Any]) -> None:
    """:class:`RefusedError` when a trigger would end a run before everything was read.

    Before 4.2 Spark asks a Python source once how far it has come, and ends after that epoch,
    whatever is left beyond ``max_rows_per_epoch``.
    """
    ending = [name for name in ("availableNow", "once") if trigger.get(name)]
    if not ending or spark_version(spark) >= ADMISSION_CONTROL:
        return
    formats = sequenced_formats(spark, df)
    if formats:
        raise RefusedError(
            f"a run that ends by itself (available_now) needs Spark 4.2 or newer for the source "
            f"{formats[0]!r}, and this is {spark.version}",
            where="Spark would end the run after one epoch of max_rows_per_epoch rows, and say "
            "nothing of those that are left.",
            hint="Use run(available_now=False, timeout=…), or Spark 4.2.",
        )


def sequenced_formats(spark: SparkSession, df: DataFrame) -> list[str]:
    """The format names of all :class:`SequencedSource` streams that a DataFrame reads."""
    formats = []
    for leaf in leaves(df):
        if leaf.isStreaming() and leaf.getClass().getSimpleName() == "StreamingRelationV2":
            name = str(leaf.sourceName())
            if _sequenced_class(spark, name) is not None:
                formats.append(name)
    return formats


def position_looks(
    spark: SparkSession, sources: Mapping[str, tuple[str, Mapping[str, str]]], patience: float
) -> dict[str, PositionLook]:
    """For each :class:`SequencedSource` among sources, given by format and options: how to ask it
    whether it can go on from a line of the offset log, and for how many seconds.
    """
    looks: dict[str, PositionLook] = {}
    for source, (name, options) in sources.items():
        cls = _sequenced_class(spark, name)
        if cls is not None:
            looks[source] = PositionLook(source, cls, options, patience)
    return looks


def origin_ids(looks: Mapping[str, PositionLook]) -> dict[str, dict[str, str]]:
    """By source: the id of what it reads, where that is known."""
    ids = {source: look.place_id() for source, look in looks.items()}
    return {source: {ORIGIN: known} for source, known in ids.items() if known is not None}


def other_origins(before: Mapping[str, Any], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Sources that read something else than in a checkpoint, in words. Pure."""
    return [
        f"source {source!r} reads another table than before: it was made again or restored, or is "
        "in another database. Rows up to the position of the source count as read"
        for source, ids in now.items()
        if isinstance(known := before.get(source), dict)
        and known.get(ORIGIN, ids[ORIGIN]) != ids[ORIGIN]
    ]


def _sequenced_class(spark: SparkSession, name: str) -> type[SequencedSource] | None:
    """The Python class that is registered under a name, if it is one of Seamark's kind."""
    from seamark.sources.sequenced import SequencedSource

    session: Any = spark._jsparkSession
    manager = session.sessionState().dataSourceManager()
    if not manager.dataSourceExists(name):
        return None  # Kafka, files, and whatever else is no Python source
    # a Scala sequence of signed bytes: as a text it takes one call instead of one for each
    pickled = str(manager.lookupDataSource(name).dataSourceCls().command().mkString(","))
    cls = pickle.loads(bytes(int(number) & 0xFF for number in pickled.split(",")))
    return cls if isinstance(cls, type) and issubclass(cls, SequencedSource) else None
