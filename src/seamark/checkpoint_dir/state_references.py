"""Files of a checkpoint directory that name state files, before Spark follows the names.

A snapshot of RocksDB says which files Spark is to copy, from where and under which names. The
commit log, and a changelog with an id, say which files the state is made of. Spark checks none of
them: it reads and writes wherever a name leads.

Tests: ``tests/checkpoint_dir/test_state_references.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from seamark._common.parallel import map_in_threads
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.formats.hdfs_state import lineage_of, parse_lineage
from seamark.checkpoint_dir.formats.lz4_blocks import codec_of
from seamark.checkpoint_dir.formats.snappy_chunks import require_true_sizes
from seamark.checkpoint_dir.state_files import needed_ssts, parse_state_file
from seamark.errors import DamageError
from seamark.spark.batch_log import parse_commit
from seamark.spark.changelog_heads import changelog_head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT_REPAIR: Final = "spark.sql.streaming.stateStore.autoSnapshotRepair.enabled"
_AT_A_TIME: Final = 8
_PUT_BACK: Final = (
    "Spark would read and write files wherever a name in it leads. Put it back from a copy of the "
    "directory or store."
)
_WITH_LINEAGE: Final = ("v3", "v4")


def require_state_inside(files: CheckpointFiles, spark: SparkSession | None = None) -> None:
    """:class:`DamageError` when state files name anything but files of their own store.

    Without ``spark`` a changelog in another codec than LZ4 is not looked at.
    """
    for batch in files.batches("commits")[-2:]:
        _check_commit(files, batch)
    _check_all(files, filter(_names_others, files.files_below("state")), spark)


def require_version_inside(
    files: CheckpointFiles, operators: Iterable[int], version: int, spark: SparkSession
) -> None:
    """The same for what Spark can load for a version of some operators; its session may not have
    :data:`SNAPSHOT_REPAIR` on, with which it goes on to any older snapshot.
    """
    if version - 1 in files.batches("commits"):
        _check_commit(files, version - 1)
    paths = (path for number in operators for path in files.files_below(f"state/{number}"))
    _check_all(files, _loadable(filter(_names_others, paths), version), spark)


def _check_commit(files: CheckpointFiles, batch: int) -> None:
    path = f"commits/{batch}"
    try:
        parse_commit(files.read_text(path) or "")
    except DamageError as error:
        raise DamageError(error.what, where=f"{files.uri}/{path}", hint=_PUT_BACK) from None


def _loadable(paths: Iterable[str], version: int) -> list[str]:
    """Which of them Spark can load for a version: without ids only the newest snapshot is."""
    newest: dict[str, tuple[int, str]] = {}
    others: list[str] = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        file = parse_state_file(name)
        if file is None or file.uid is not None:
            others += [path] if file is None or file.version <= version else []
        elif file.version <= version:
            newest[folder] = max(newest.get(folder, (0, "")), (file.version, path))
    return [*others, *(path for _, path in newest.values())]


def _check_all(files: CheckpointFiles, paths: Iterable[str], spark: SparkSession | None) -> None:
    check = partial(_check, files, spark)
    map_in_threads(check, list(paths), _AT_A_TIME, "seamark-names")


def _names_others(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".zip") or ("_" in name and name.endswith(".changelog"))


def _check(files: CheckpointFiles, spark: SparkSession | None, path: str) -> None:
    try:
        data = files.read(path)
    except FileNotFoundError:  # a running query removes old ones
        return
    try:
        if path.endswith(".zip"):
            needed_ssts(data)
        else:
            _check_lineage(files, path, data, spark)
    except DamageError as error:
        raise DamageError(
            error.what,
            where=error.where or f"{files.uri}/{path}",
            hint=_PUT_BACK,
        ) from None


def _check_lineage(
    files: CheckpointFiles, path: str, data: bytes, spark: SparkSession | None
) -> None:
    codec = codec_of(data)
    if codec in (None, "lz4"):
        lineage_of(data)
    elif spark is not None:
        if codec == "snappy":
            require_true_sizes(data)
        version, text = changelog_head(spark, f"{files.uri}/{path}", codec)
        if version in _WITH_LINEAGE:
            parse_lineage(text.encode())
