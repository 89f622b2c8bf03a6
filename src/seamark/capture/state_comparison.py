"""Whether a batch that was run again has changed its state as it did the first time.

Compared is what the batch wrote into each store: ``V.delta`` or ``V.changelog``. Where the bytes
differ, the changes of each key are compared, because Spark may write the keys in another order.
A batch that wrote snapshots only (RocksDB without changelogs) has nothing to compare: SST files
and what names them differ with every run.

Tests: ``tests/capture/test_state_comparison.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from seamark.capture.file_index import StoredFile
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.formats.hdfs_state import read_changes
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.checkpoint_dir.state_files import (
    StateFile,
    is_state,
    parse_state_file,
    store_folder,
)

ReadStored = Callable[[str], bytes | None]
"""Gives the bytes of a file that a checkpoint holds; None when it is not to be had any more."""

_LARGEST_DECODED: Final = 64 << 20


@dataclass(frozen=True)
class StateComparison:
    """What was compared, and what came out different."""

    equal: tuple[str, ...] = ()
    """State files that the batch has written as before."""
    differing: tuple[str, ...] = ()
    """State files with other changes in them, or that the batch has not written."""
    not_compared: int = 0
    """Files whose content cannot be compared."""

    @property
    def is_equal(self) -> bool | None:
        """None when nothing could be compared."""
        if self.differing:
            return False
        return True if self.equal else None


def compare_changes(
    copy: CheckpointFiles,
    stored: Mapping[str, StoredFile],
    version: int,
    read: ReadStored | None = None,
) -> StateComparison:
    """Compare the changes of one version in a directory with those that a checkpoint holds.

    ``read`` gives the bytes of a stored file; without it only hashes are compared.
    """
    equal: list[str] = []
    differing: list[str] = []
    not_compared = 0
    for path, known in stored.items():
        file = parse_state_file(path.rpartition("/")[2]) if is_state(path) else None
        if file is None or file.version != version or file.is_snapshot:
            continue
        match _is_same(copy, path, file, known, read):
            case True:
                equal.append(path)
            case False:
                differing.append(path)
            case None:
                not_compared += 1
    return StateComparison(tuple(equal), tuple(differing), not_compared)


def _is_same(
    copy: CheckpointFiles, path: str, file: StateFile, known: StoredFile, read: ReadStored | None
) -> bool | None:
    """Whether the directory has the same changes; None when that cannot be told."""
    own = path if file.uid is None else _own_path(copy, path, file)
    try:
        if own is None or _sha256(copy, own) == known.sha256:
            return None if own is None else True
    except FileNotFoundError:
        return False
    if read is None:
        return False if file.uid is None else None  # with ids the bytes always differ
    if known.size > _LARGEST_DECODED:
        return None
    if (data := read(path)) is None:
        return None
    try:
        return _by_key(data) == _by_key(copy.read(own))
    except NotDecodable:
        return None


def _own_path(copy: CheckpointFiles, path: str, file: StateFile) -> str | None:
    """The file of the same version under the id that this run has given it; None for several."""
    folder = store_folder(path)
    names = [
        name
        for name in copy.names_in(folder)
        if (own := parse_state_file(name)) is not None
        and (own.version, own.extension) == (file.version, file.extension)
    ]
    return f"{folder}/{names[0]}" if len(names) == 1 else None


def _sha256(copy: CheckpointFiles, path: str) -> bytes:
    hasher = hashlib.sha256()
    for piece in copy.stream(path):
        hasher.update(piece)
    return hasher.digest()


def _by_key(data: bytes) -> dict[bytes, list[tuple[bytes | None, bool]]]:
    """What happens to each key, in order; the order of the keys says nothing."""
    changes: dict[bytes, list[tuple[bytes | None, bool]]] = {}
    for key, value, merge in read_changes(data):
        changes.setdefault(key, []).append((value, merge))
    return changes
