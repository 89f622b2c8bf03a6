"""Rows in files that appear an epoch at a time, by one rename.

::

    {path}/epoch=000042/part-00000-….parquet    what readers see
    {path}/epoch=000042/_seamark.json           what these files are, and whose
    {path}/_seamark/staging/{attempt}/          written, not shown yet
    {path}/_seamark/unpublished/{timeline}/     shown once, and taken back

Readers skip names that begin with ``_``. A rename within one file system happens or does not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from seamark.errors import InvalidInputError
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Receipt,
    Sink,
    identity_in,
    receipt_of,
)
from seamark.sinks.epoch_folder import drop_litter, folder_name, seal_epoch
from seamark.sinks.folders import check_token, local_folder
from seamark.sinks.publish import (
    Known,
    Prepared,
    publish,
    published_epochs,
    receipt_in,
    unpublish_after,
)
from seamark.sinks.staged_epochs import (
    Coalesce,
    making_durable,
    remove_staged,
    staged_attempts,
    staging_folder,
    staging_into,
    write_files,
)
from seamark.sinks.target_checks import check_schema, claim_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Format = Literal["parquet", "json", "csv", "orc"]
_TEXT: Final = ("json", "csv")


class FileSink(Sink):
    """Files of one format below a folder of a local or shared file system, exactly once.

    Readers find a folder ``epoch=000042`` per epoch, whole or not at all, and see its number as a
    column ``epoch``. ``partition_by`` makes folders below it, as Spark's ``partitionBy`` does, and
    ``options`` go to Spark's writer. ``coalesce`` is how many files an epoch has at most: by
    default one per core when Spark runs on this machine alone, and else what the plan gives.
    """

    consumes_all = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Format = "parquet",  # noqa: A002 - what a PySpark user types
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        coalesce: Coalesce = "auto",
    ) -> None:
        if format not in get_args(Format):
            raise InvalidInputError(
                f"a FileSink cannot write {format!r}",
                hint=f"It writes {', '.join(get_args(Format))}.",
            )
        if coalesce not in ("auto", None) and (not isinstance(coalesce, int) or coalesce < 1):
            raise InvalidInputError(f"coalesce is 'auto', None or at least 1, not {coalesce!r}")
        self.path = local_folder(path)
        self._format = format
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else (*partition_by,)
        self._options = dict(options or {})
        self._coalesce = coalesce
        self._staged: Receipt | None = None
        self._prepared: Known | None = None

    def describe(self) -> Description:
        options = {"format": self._format, "partition_by": list(self._partition_by)}
        return Description("files", self.path, options)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        check_schema(schema, self._format, self._partition_by)
        claim_folder(self.path, pipeline, sink, self._format, self._partition_by)

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        folder = staging_folder(self.path, attempt, epoch.number)
        self._staged = self._prepared = None
        with staging_into(folder, self.path):
            self._write(df, folder)
        self._staged = receipt_of(epoch, attempt)

    def _write(self, df: DataFrame, folder: str) -> None:
        write_files(
            df,
            folder,
            self._format,
            partition_by=self._partition_by,
            options=self._options,
            coalesce=self._coalesce,
        )

    def prepare(self) -> Committable:
        receipt = self._staged
        if receipt is None:
            raise InvalidInputError("nothing was staged that could be prepared", where=self.path)
        with making_durable(self.path, receipt) as folder:
            drop_litter(folder, empty_files=self._format in _TEXT)
            sealed, versions = seal_epoch(folder, receipt)
        self._prepared = Known(sealed.digest, versions)
        return {
            "sink": receipt.sink,
            "timeline": receipt.timeline,
            "epoch": receipt.epoch,
            "attempt": receipt.attempt,
            "fingerprint": receipt.fingerprint,
            "files": len(sealed.record.files),
            "bytes": sum(file.size for file in sealed.record.files),
            "digest": sealed.digest,
            "target": folder_name(receipt.epoch),
        }

    def commit(self, committable: Committable) -> None:
        publish(self.path, identity_in(committable, Prepared), self._prepared)

    # looking after what there is

    def abort(self, attempt: str) -> None:
        remove_staged(self.path, attempt)

    def leftovers(self) -> list[str]:
        return staged_attempts(self.path)

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return receipt_in(f"{self.path}/{folder_name(epoch)}")

    def newest(self) -> Receipt | None:
        epochs = published_epochs(self.path)
        return self.committed("", epochs[-1]) if epochs else None

    def unpublish_after(self, epoch: int) -> list[int]:
        return unpublish_after(self.path, epoch)
