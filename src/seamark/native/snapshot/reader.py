"""Reading what a batch has that the chain of checkpoints lacks: at once, or in parts when large.

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from seamark.capture.batches import BatchAt
from seamark.capture.capture import FILE_LIST, LOG, Captured
from seamark.capture.chain import FileList, encode_file_list
from seamark.capture.placement import Part, partition_of
from seamark.capture.readers import Contents
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import RefusedError
from seamark.native.snapshot.increments import HeldFiles
from seamark.state.lcb1 import BATCH_LIMIT

_PART: Final = 32 << 20
_AT_A_TIME: Final = 8


@dataclass(frozen=True)
class NewFiles:
    """What a checkpoint will hold itself."""

    captured: Captured
    large: Iterator[Part] | None
    """State that is read when it is written, or None when all of it is in ``captured``."""
    count: int


def read_new(
    tree: Tree, at: BatchAt, held: HeldFiles, most: int, advance: Callable[[int], None] | None
) -> NewFiles:
    """The files of a batch that ``held`` lacks; state is read now when it is at most ``most``."""
    new_paths: dict[str, list[str]] = {}
    for need in at.needs:
        new_paths.setdefault(need.operator.label, []).extend(
            path for path in need.paths if not _is_held(tree, held, path)
        )
    logs = _new_logs(at, held)
    listed = [path for paths in new_paths.values() for path in paths]
    versions = {path: tree.entries[path].version for path in listed if path in tree.entries}
    logs_versions = {path: _digest(data) for path, data in logs.items()}
    logs[FILE_LIST] = encode_file_list(FileList(versions | logs_versions, at.paths))
    read = partial(_read_all, tree, advance)
    files: dict[str, Contents] = {LOG: logs}
    large = None
    if tree.size_of(listed) > most:
        large = _in_parts(tree, new_paths, read)
    else:
        files |= {label: read(paths) for label, paths in new_paths.items()}
    partitions = max((need.folder.partition + 1 for need in at.needs), default=0)
    captured = Captured(files, held.manifest is None, [at.batch + 1] * partitions)
    return NewFiles(captured, large, len(listed) + len(logs) - 1)


def _is_held(tree: Tree, held: HeldFiles, path: str) -> bool:
    entry = tree.entries.get(path)
    return entry is not None and held.versions.get(path) == entry.version


def _new_logs(at: BatchAt, held: HeldFiles) -> Contents:
    always = ("metadata", "offsets/", "commits/")
    return {
        path: data
        for path, data in at.logs.items()
        if path.startswith(always) or held.versions.get(path) != _digest(data)
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_all(tree: Tree, advance: Callable[[int], None] | None, paths: list[str]) -> Contents:
    def one(path: str) -> bytes:
        data = tree.read(path)
        entry = tree.entries.get(path)
        if entry is None or len(data) != entry.size:
            raise MissingVersion(f"{path} changed while it was read", where=tree.directory.url)
        if advance is not None:
            advance(len(data))
        return data

    if len(paths) < _AT_A_TIME:
        return {path: one(path) for path in paths}
    with ThreadPoolExecutor(_AT_A_TIME, "seamark-read") as pool:
        return dict(zip(paths, pool.map(one, paths), strict=True))


def _in_parts(
    tree: Tree, new_paths: dict[str, list[str]], read: Callable[[list[str]], Contents]
) -> Iterator[Part]:
    """Each partition by itself, a large one in several shares: memory holds a few of them."""
    for label, paths in new_paths.items():
        by_partition: dict[int, list[str]] = {}
        for path in paths:
            by_partition.setdefault(partition_of(path), []).append(path)
        for partition, its in by_partition.items():
            for number, share in enumerate(_shares(tree, its)):
                name = f"{label}+{number}" if number else label
                yield name, partition, partial(read, share)


def _shares(tree: Tree, paths: list[str]) -> Iterator[list[str]]:
    share: list[str] = []
    size = 0
    for path in paths:
        more = tree.entries[path].size if path in tree.entries else 0
        if more > BATCH_LIMIT:
            raise RefusedError(
                f"{path} has {more} bytes; a single state file may have {BATCH_LIMIT}",
                where=tree.directory.url,
                hint="More state partitions make smaller files.",
            )
        if share and size + more > _PART:
            yield share
            share, size = [], 0
        share.append(path)
        size += more
    if share:
        yield share
