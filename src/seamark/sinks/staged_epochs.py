"""Where an attempt stages an epoch until it is published or applied, and how Spark writes it there.

::

    {path}/_seamark/staging/{attempt}/epoch=000042/

Tests: ``tests/sinks/test_view_staging.py``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from seamark._common.files import require_inside, sync_folder
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError
from seamark.sinks.contract import Receipt
from seamark.sinks.epoch_folder import epoch_of, folder_name
from seamark.sinks.folders import (
    check_token,
    is_there,
    is_token,
    names_in,
    remove_tree,
    sync_if_there,
)
from seamark.spark.session import retries_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Coalesce = Literal["auto"] | int | None


def coalesced(df: DataFrame, coalesce: Coalesce) -> DataFrame:
    """The same rows in at most so many parts; "auto" is one per core on this machine alone."""
    if coalesce == "auto":
        spark = df.sparkSession.sparkContext
        is_local = (spark.master or "").startswith("local")
        return df.coalesce(spark.defaultParallelism) if is_local else df
    return df if coalesce is None else df.coalesce(coalesce)


def write_files(
    df: DataFrame,
    folder: str,
    file_format: str,
    *,
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    coalesce: Coalesce = "auto",
) -> None:
    """Write the rows into a folder that is not there yet, by one job that reads each of them.

    The folder is a path of this machine, or a URL.
    """
    df = coalesced(df, coalesce)
    master = df.sparkSession.sparkContext.master or ""
    settings = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    if not retries_tasks(master):
        # version 2 saves a rename per file, but where tasks are tried again it can leave files
        # of a try that failed half-way
        settings["mapreduce.fileoutputcommitter.algorithm.version"] = "2"
    writer = df.write.format(file_format).options(**settings).options(**(options or {}))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(f"file://{folder}" if folder.startswith("/") else folder)


_STAGING: Final = "_seamark/staging"


def attempt_folder(path: str, attempt: str) -> str:
    """Where an attempt writes its rows."""
    return f"{path}/{_STAGING}/{check_token(attempt, 'an attempt')}"


def staging_folder(path: str, attempt: str, epoch: int) -> str:
    """Where an epoch is until it is published."""
    return f"{attempt_folder(path, attempt)}/{folder_name(epoch)}"


@contextmanager
def staging_into(folder: str, below: str) -> Iterator[None]:
    """Clear away what an earlier try of the same attempt has left; afterwards the folder exists."""
    with translate_os_errors("staging into", folder):
        require_inside(below, folder)
        remove_tree(os.path.dirname(folder))
        os.makedirs(os.path.dirname(folder))
    yield
    with translate_os_errors("staging into", folder):
        os.makedirs(folder, exist_ok=True)  # an epoch without rows may have no folder


def staged_attempts(path: str) -> list[str]:
    """Tokens that something is staged under. Another name there is nobody's, and left alone."""
    folder = f"{path}/{_STAGING}"
    with translate_os_errors("listing", folder):
        return [name for name in names_in(folder) if is_token(name)]


def remove_staged(path: str, attempt: str) -> None:
    """Remove what was staged under a token; harmless when nothing was.

    Whoever is about to publish an epoch of it finds all of the epoch, or nothing.
    """
    folder = attempt_folder(path, attempt)
    with translate_os_errors("removing", folder):
        require_inside(path, f"{folder}/")
        if is_there(folder):
            for name in names_in(folder):
                if epoch_of(name) is not None:
                    with suppress(FileNotFoundError):
                        os.rename(f"{folder}/{name}", f"{folder}/removed-{uuid.uuid4().hex}")
            remove_tree(folder)
            sync_if_there(os.path.dirname(folder))


@contextmanager
def making_durable(path: str, receipt: Receipt) -> Iterator[str]:
    """Gives the folder of a staged epoch, and afterwards makes the names that lead to it durable.

    :class:`DamageError` when it is gone.
    """
    folder = staging_folder(path, receipt.attempt, receipt.epoch)
    if not os.path.isdir(folder):
        raise DamageError(
            f"what was staged for epoch {receipt.epoch} is gone",
            where=folder,
            hint="Has another writer, or somebody else, removed it? Start again.",
        )
    with translate_os_errors("making durable", folder):
        yield folder
        while folder != path:
            folder = os.path.dirname(folder)
            sync_folder(folder)
