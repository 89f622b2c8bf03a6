"""Rows in files that appear an epoch at a time, by one rename.

::

    {path}/epoch=000042/part-00000-….parquet    what readers see
    {path}/epoch=000042/_seamark.json           what these files are, and whose
    {path}/upto=001000/epoch=000042/            the same with ``epochs_per_folder=1000``
    {path}/_seamark/staging/{attempt}/          written, not shown yet
    {path}/_seamark/unpublished/{timeline}/     shown once, and taken back

Readers skip names that begin with ``_``. A rename within one file system happens or does not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast, get_args

from seamark._common.checks import check_number
from seamark.errors import InvalidInputError
from seamark.sinks.compaction import compact, lock_ranges, require_whole_ranges
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Identity,
    Receipt,
    Sink,
    identity_in,
    no_longer_shown,
    receipt_of,
)
from seamark.sinks.epoch_folder import drop_litter, folder_name, seal_epoch
from seamark.sinks.epoch_ranges import MergedReceipts, epoch_path
from seamark.sinks.file_values import (
    knows_new_patterns,
    refusing_changed,
    without_changed,
    writing_options,
)
from seamark.sinks.folders import check_token, is_hdfs, local_folder
from seamark.sinks.merged_files import merge_files, oldest_epoch, require_compactable
from seamark.sinks.partition_texts import refusing_odd_texts, without_odd_texts
from seamark.sinks.publish import (
    Known,
    Prepared,
    publish,
    published_epochs,
    receipt_in,
    unpublish_after,
)
from seamark.sinks.read_point import ReadPoint, needed_to_read
from seamark.sinks.staged_epochs import (
    Coalesce,
    making_durable,
    remove_staged,
    staged_attempts,
    staging_folder,
    staging_into,
    write_files,
)
from seamark.sinks.target_checks import Target, check_folder, check_schema, claim_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from seamark.store import CheckpointStore

Format = Literal["parquet", "json", "csv", "orc"]
_TEXT: Final = ("json", "csv")


class FileSink(Sink):
    """Files of one format below a folder of a local or shared file system or of HDFS, exactly once.

    Readers find a folder ``epoch=000042`` per epoch, whole or not at all, and see its number as a
    column ``epoch``. ``partition_by`` makes folders below it, as Spark's ``partitionBy`` does, and
    ``options`` go to Spark's writer. ``coalesce`` is how many files an epoch has at most: by
    default one per core when Spark runs on this machine alone, and else what the plan gives.

    ``epochs_per_folder`` groups epochs in folders ``upto=001000`` of that many, which can then be
    merged in place by :meth:`compact`; readers see a column ``upto`` as well. Local folders only.
    """

    consumes_all = True

    def __new__(cls, path: str | os.PathLike[str] = "", *_: Any, **__: Any) -> Self:
        """A sink for the file system that the path is on."""
        if cls is FileSink and is_hdfs(path):
            from seamark.sinks.hdfs_files import HdfsFileSink

            return super().__new__(cast("type[Self]", HdfsFileSink))
        return super().__new__(cls)

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Format = "parquet",  # noqa: A002 - what a PySpark user types
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        coalesce: Coalesce = "auto",
        epochs_per_folder: int | None = None,
    ) -> None:
        if format not in get_args(Format):
            raise InvalidInputError(
                f"a FileSink cannot write {format!r}",
                hint=f"It writes {', '.join(get_args(Format))}.",
            )
        if coalesce not in ("auto", None) and (not isinstance(coalesce, int) or coalesce < 1):
            raise InvalidInputError(f"coalesce is 'auto', None or at least 1, not {coalesce!r}")
        if epochs_per_folder is not None:
            check_number("epochs_per_folder", epochs_per_folder, 2, 1_000_000)
        self._per_range = epochs_per_folder
        self.path = self._folder_at(path)
        self._format = format
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else (*partition_by,)
        self._options = dict(options or {})
        self._coalesce = coalesce
        self._merged = MergedReceipts()
        self._staged: Receipt | None = None
        self._prepared: Known | None = None
        self._output: tuple[str, str] | None = None
        """Pipeline and sink that the folder has yet to be claimed for."""
        self._last: Prepared | None = None
        """What this run has shown last."""

    def _folder_at(self, path: str | os.PathLike[str]) -> str:
        return local_folder(path)

    def describe(self) -> Description:
        options: dict[str, Any] = {
            "format": self._format,
            "partition_by": list(self._partition_by),
        }
        if self._per_range is not None:
            options["epochs_per_folder"] = self._per_range
        return Description("files", self.path, options)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        in_ranges = self._per_range is not None
        check_schema(schema, self._format, self._partition_by, in_ranges=in_ranges)
        self._last = None
        by, per_range = self._partition_by, self._per_range
        self._output = (pipeline, sink)
        self._look(Target(pipeline, sink, self._format, by, epochs_per_folder=per_range))

    def _look(self, ours: Target) -> None:
        check_folder(self.path, ours)

    def prepare_target(self) -> None:
        if self._output is not None:
            self._claim(*self._output)
            self._output = None

    def _claim(self, pipeline: str, sink: str) -> None:
        claim_folder(self.path, pipeline, sink, self._format, self._partition_by, self._per_range)

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        self.prepare_target()
        self._require_last()
        folder = staging_folder(self.path, attempt, epoch.number)
        self._staged = self._prepared = None
        with staging_into(folder, self.path):
            self._write(df, folder)
        self._staged = receipt_of(epoch, attempt)

    def _write(self, df: DataFrame, folder: str) -> None:
        by, kind = self._partition_by, self._format
        is_new = knows_new_patterns(df)
        with refusing_odd_texts(by, self.path), refusing_changed(kind, self.path):
            write_files(
                without_changed(without_odd_texts(df, by), kind),
                folder,
                kind,
                partition_by=by,
                options=writing_options(kind, self._options, new_patterns=is_new),
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
        return committable_of(receipt, [file.size for file in sealed.record.files], sealed.digest)

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Prepared)
        publish(self.path, prepared, self._prepared, self._per_range)
        self._last = prepared

    def _require_last(self) -> None:
        """:class:`LineageError` when the folder has lost what this run has shown last."""
        if (last := self._last) is not None:
            shown = self.committed(last.timeline, last.epoch)
            if shown is None or not last.is_shown_by(shown):
                raise no_longer_shown(last, "folder", self.path)

    def read_point(self, committable: Committable) -> ReadPoint:
        at = {
            "epoch": identity_in(committable, Identity).epoch,
            "format": self._format,
            "partition_by": list(self._partition_by),
            "epochs_per_folder": self._per_range,
            "options": needed_to_read(self._format, self._options),
        }
        return ReadPoint("files", self.path, {name: value for name, value in at.items() if value})

    # looking after what there is

    def abort(self, attempt: str) -> None:
        remove_staged(self.path, attempt)

    def leftovers(self) -> list[str]:
        return staged_attempts(self.path)

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return receipt_in(epoch_path(self.path, epoch, self._per_range), self._merged)

    def newest(self) -> Receipt | None:
        # another driver may just take the newest back: then it is the one below
        receipts = (self.committed("", epoch) for epoch in reversed(published_epochs(self.path)))
        return next((found for found in receipts if found is not None), None)

    def require_unpublish_after(self, epoch: int) -> None:
        require_whole_ranges(self.path, epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        self._last = None
        if self._per_range is None:
            return unpublish_after(self.path, epoch, of)
        self.prepare_target()  # the lock is in the folder
        with lock_ranges(self.path):
            require_whole_ranges(self.path, epoch)
            return unpublish_after(self.path, epoch, of)

    # a year of epochs

    def compact(
        self,
        store: CheckpointStore | str | os.PathLike[str],
        *,
        spark: SparkSession | None = None,
    ) -> list[int]:
        """Merge the epochs of each range that no checkpoint of the store can go back to.

        ``store`` is that of the pipeline. A range is merged when all its epochs are older than the
        oldest checkpoint that is kept or pinned. Readers see each row once at any moment; one that
        reads the range at that very moment may fail and can read again. The pipeline may be
        running. Returns the last epoch of each range that was merged.

        :class:`RefusedError` without ``epochs_per_folder``, for csv, and on a file system that
        cannot exchange two folders.
        """
        require_compactable(self._per_range, self._format, self._options, self.path)
        until = oldest_epoch(store, self.path)
        return compact(
            self.path, until, partial(self._merge, spark), empty_files=self._format in _TEXT
        )

    def _merge(
        self, spark: SparkSession | None, folder: str, epochs: list[str], target: str, size: int
    ) -> None:
        merge_files(
            spark,
            folder,
            epochs,
            target,
            file_format=self._format,
            partition_by=self._partition_by,
            options=self._options,
            size=size,
        )


def committable_of(receipt: Receipt, sizes: Sequence[int], digest: str) -> Committable:
    """What another process needs to publish an epoch, and how much it is about."""
    return {
        "sink": receipt.sink,
        "timeline": receipt.timeline,
        "epoch": receipt.epoch,
        "attempt": receipt.attempt,
        "fingerprint": receipt.fingerprint,
        "files": len(sizes),
        "bytes": sum(sizes),
        "digest": digest,
        "target": folder_name(receipt.epoch),
    }
