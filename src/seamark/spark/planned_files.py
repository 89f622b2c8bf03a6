"""Files that a batch was planned to read and that are gone.

Spark lists the files of a planned batch again and treats a missing one as empty:
the epoch would be decided, and its rows lost, without an error (seen on 4.3).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from seamark.errors import SeamarkError
from seamark.spark.batch_log import Plan
from seamark.spark.versions import IGNORE_MISSING_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_planned_files(spark: SparkSession, plan: Plan, epoch: int) -> None:
    """:class:`SeamarkError` when a file of the plan is gone, unless Spark is to ignore that."""
    if spark.conf.get(IGNORE_MISSING_FILES, None) == "true":
        return
    if gone := missing_files(plan):
        raise SeamarkError(
            f"a file that epoch {epoch} was planned to read is gone",
            where=", ".join(gone[:3]) + (f" and {len(gone) - 3} more" if gone[3:] else ""),
            hint="Bring it back: the epoch runs again on exactly the rows that it was planned for. "
            "Spark itself would take it for a file without rows.",
        )


def missing_files(plan: Plan) -> list[str]:
    """Local files of the plan that do not exist; of other file systems nothing is known here."""
    return [path for path in local_files(plan) if not os.path.exists(path)]


def local_files(plan: Plan) -> Iterator[str]:
    """The local files that the entries of file sources name; other sources' entries name none."""
    for entry in plan.sources.values():
        for line in entry.split("\n")[1:]:
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                continue
            uri = urlsplit(str(fields.get("path", ""))) if isinstance(fields, dict) else None
            if uri is not None and uri.scheme == "file":
                yield unquote(uri.path)
