"""Streams that can be read again: anything that has positions, on Spark's Python Data Source API.

::

    from seamark.sources import TableSource

    spark.dataSource.register(TableSource)
    orders = (
        spark.readStream.format("seamark_table")
        .option("driver", "psycopg").option("dsn_env", "ORDERS_DSN")
        .option("table", "shop.orders").option("key", "id")
        .load()
    )

Names are loaded on first use; this package alone needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seamark._common.lazy import lazy_names

if TYPE_CHECKING:
    from seamark.errors import PositionUnavailable
    from seamark.sources.delta.source import DeltaSource
    from seamark.sources.iceberg.source import IcebergSource
    from seamark.sources.sequence_reader import PositionRange
    from seamark.sources.sequenced import SequencedSource
    from seamark.sources.table.source import TableSource

__all__ = [
    "DeltaSource",
    "IcebergSource",
    "PositionRange",
    "PositionUnavailable",
    "SequencedSource",
    "TableSource",
]

_HOMES = {
    "seamark.errors": "PositionUnavailable",
    "seamark.sources.delta.source": "DeltaSource",
    "seamark.sources.iceberg.source": "IcebergSource",
    "seamark.sources.sequence_reader": "PositionRange",
    "seamark.sources.sequenced": "SequencedSource",
    "seamark.sources.table.source": "TableSource",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, globals())
