"""From a path or URI to a checkpoint directory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from seamark._redaction import has_password
from seamark.blobs.opening import refuse_broken_url
from seamark.checkpoint_dir.places.directory import Directory
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})


def open_directory(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
) -> Directory:
    """The checkpoint directory at a path or URI. Creates nothing.

    A path, ``file:``, ``s3a://`` or ``s3://``, ``gs://``, ``abfss://`` work without Spark; any
    other scheme goes through the file systems of ``spark``, or of the installed Spark.
    """
    text = os.fspath(path)
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme in ("", *_OBJECT_STORES):
        refuse_broken_url(text)  # Hadoop knows others with one slash, as in dbfs:/mnt
    if scheme in ("", "file"):
        if storage_options:
            raise InvalidInputError("storage options mean nothing for a local directory")
        # as Hadoop reads it: nothing is escaped
        return LocalDirectory(text if not scheme else "/" + text[5:].lstrip("/"))
    if has_password(text) or "?" in text or "#" in text:
        # it would appear in manifests and messages
        raise InvalidInputError(
            f"a {scheme}:// URL may not carry credentials or a query",
            hint="Give them by --storage-option or by the environment.",
        )
    if scheme in _OBJECT_STORES:
        from seamark.checkpoint_dir.places.object_store import ObjectDirectory

        return ObjectDirectory(text, storage_options or {})
    from seamark.checkpoint_dir.places.hadoop import HadoopDirectory

    return HadoopDirectory(text, spark)
