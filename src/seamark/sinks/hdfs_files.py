"""A FileSink on HDFS, through the file system of Spark itself.

The layout is that of a local folder. A rename within HDFS happens on the NameNode, at once or not
at all. What a file consists of is recorded by the checksum that HDFS keeps beside its blocks.

Tests: ``tests/integration/test_hdfs_sink.py``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from seamark.checkpoint_dir.places.directory import refuse_secrets
from seamark.errors import InvalidInputError
from seamark.sinks.contract import Committable, Epoch, Receipt, identity_in, receipt_of
from seamark.sinks.files import FileSink, committable_of
from seamark.sinks.folders import check_token
from seamark.sinks.hdfs_folder import HdfsFolder
from seamark.sinks.publish import Prepared
from seamark.sinks.target_checks import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HdfsFileSink(FileSink):
    """Files of one format below a folder of HDFS. Made by ``FileSink("hdfs://…")``."""

    _folder: HdfsFolder

    def _folder_at(self, path: str | os.PathLike[str]) -> str:
        url = str(path).rstrip("/")
        refuse_secrets(url)
        parts = urlsplit(url)
        if not parts.path.strip("/") or parts.query or parts.fragment:
            raise InvalidInputError(f"a folder on HDFS looks like hdfs://name/folder, not {path!r}")
        if self._per_range is not None:
            raise InvalidInputError(
                "epochs cannot be merged on HDFS, where two folders cannot be exchanged at once",
                where=url,
                hint="Leave epochs_per_folder out there.",
            )
        self._folder = HdfsFolder(url)
        return url

    def _look(self, ours: Target) -> None:
        self._folder.check(ours)

    def _claim(self, pipeline: str, sink: str) -> None:
        self._folder.claim(Target(pipeline, sink, self._format, self._partition_by))

    def close(self) -> None:
        self._folder.close()

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        self.prepare_target()
        self._require_last()
        self._staged = None
        self._folder.stage(attempt, epoch.number, lambda folder: self._write(df, folder))
        self._staged = receipt_of(epoch, attempt)

    def prepare(self) -> Committable:
        receipt = self._staged
        if receipt is None:
            raise InvalidInputError("nothing was staged that could be prepared", where=self.path)
        sealed = self._folder.seal(receipt, empty_files=self._format in ("json", "csv"))
        return committable_of(receipt, [file.size for file in sealed.record.files], sealed.digest)

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Prepared)
        self._folder.publish(prepared)
        self._last = prepared

    def abort(self, attempt: str) -> None:
        self._folder.remove_staged(attempt)

    def leftovers(self) -> list[str]:
        return self._folder.attempts()

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return self._folder.receipt(epoch)

    def newest(self) -> Receipt | None:
        # another driver may just take the newest back: then it is the one below
        receipts = (self._folder.receipt(epoch) for epoch in reversed(self._folder.epochs()))
        return next((found for found in receipts if found is not None), None)

    def require_unpublish_after(self, epoch: int) -> None:
        """Whatever was published here can be taken back."""

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        self._last = None
        return self._folder.unpublish_after(epoch, of)
