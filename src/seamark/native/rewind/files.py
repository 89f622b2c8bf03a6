"""Which files of a checkpoint directory belong to batches after a given one, and moving them.

Each list, made from names alone, is in the order in which the files leave: newest first, and the
hidden checksum that Hadoop keeps of a file before the file itself. A file without its checksum can
be read; a checksum without its file would spoil the next one of that name.

Tests: ``tests/native/test_rewind.py``.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from seamark._common.files import make_folders, sync_folders
from seamark._common.os_errors import translate_os_errors
from seamark._common.parallel import map_in_threads
from seamark.checkpoint_dir.formats.checksums import hidden_checksum
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.state_files import version_of

SINK_LOG: Final = "_spark_metadata"
"""The folder of a file sink's log, in its output and in what was moved aside."""

STATE: Final = "state"
OPERATORS: Final = "operators"
COMMITS: Final = "commits"
OFFSETS: Final = "offsets"
SOURCES: Final = "sources"
KINDS: Final = (STATE, OPERATORS, COMMITS, OFFSETS, SOURCES, SINK_LOG)
"""What can leave, in the order in which it does."""

_DESCRIPTION: Final = re.compile(r"state/\d+/(?:_metadata/v2|_stateSchema/.+)/\.?(\d+)[^/]*")
_ENTRY: Final = re.compile(r"(offsets|commits|sources/[^/]+)/(\d+)(\.compact)?")
_CHECKSUM: Final = re.compile(r"(.*/)?\.([^/]+)\.crc")
_TOGETHER: Final = 128
"""Files that are removed by one call: object stores take many in one request."""


class Move(NamedTuple):
    """A file that leaves the directory."""

    kind: str
    path: str
    size: int


def newer_state(tree: Tree, batch: int) -> list[Move]:
    """State of later batches, and what later starts have noted about the operators."""
    state: list[tuple[int, Move]] = []
    described: list[Move] = []
    for path, entry in tree.entries.items():
        if not path.startswith("state/"):
            continue
        version = version_of(_owner(path))
        if version is not None and version > batch + 1:
            state.append((version, Move(STATE, path, entry.size)))
        elif (match := _DESCRIPTION.fullmatch(path)) and int(match[1]) > batch:
            described.append(Move(OPERATORS, path, entry.size))
    state.sort(key=lambda each: (-each[0], _checksums_first(each[1].path)))
    described.sort(key=lambda each: _checksums_first(each.path))
    return [each for _, each in state] + described


def newer_entries(tree: Tree, batch: int) -> list[Move]:
    """Commits and plans of later batches, newest first."""
    return [
        each
        for log in (COMMITS, OFFSETS)
        for number in reversed(tree.batches(log))
        if number > batch
        for each in with_checksum(tree, log, f"{log}/{number}")
    ]


def spare_entries(tree: Tree, needed: Collection[str]) -> list[Move]:
    """Entries of the sources' logs that the batch does not need, newest first."""

    def number(path: str) -> int:
        match = _ENTRY.fullmatch(path)
        return int(match[2]) if match else -1

    spare = [path for path in tree.source_entries() if path not in needed]
    spare.sort(key=number, reverse=True)
    return [each for path in spare for each in with_checksum(tree, SOURCES, path)]


def whole_history(tree: Tree) -> list[Move]:
    """Everything but the query's id and unknown files."""

    def rank(each: Move) -> tuple[int, int, tuple[bool, str]]:
        number = version_of(_owner(each.path))
        if number is None and (match := _ENTRY.fullmatch(_owner(each.path))):
            number = int(match[2])
        return KINDS.index(each.kind), -(number or 0), _checksums_first(each.path)

    ours = [
        Move(_kind(path), path, entry.size)
        for path, entry in tree.entries.items()
        if path.startswith("state/") or _ENTRY.fullmatch(_owner(path)) is not None
    ]
    return sorted(ours, key=rank)


def with_checksum(tree: Tree, kind: str, path: str) -> list[Move]:
    """A file after the hidden checksum that Hadoop keeps of it."""
    there = [each for each in (hidden_checksum(path), path) if each in tree.entries]
    return [Move(kind, each, tree.entries[each].size) for each in there]


def _owner(path: str) -> str:
    """The file that a hidden checksum belongs to; any other path is its own."""
    match = _CHECKSUM.fullmatch(path)
    return f"{match[1] or ''}{match[2]}" if match else path


def _checksums_first(path: str) -> tuple[bool, str]:
    return _owner(path) == path, path


def _kind(path: str) -> str:
    top = path.partition("/")[0]
    return OPERATORS if top == STATE and "/_" in path else top


def writing_order(path: str) -> tuple[int, str]:
    """The place of a file among those that are written: state before the logs that lead to it."""
    top = path.partition("/")[0]
    order = (STATE, SOURCES, OFFSETS, COMMITS)
    return (order.index(top) if top in order else len(order)), path


def move_all(source: Directory, paths: Iterable[str], target: Directory, below: str = "") -> None:
    """Take files out of ``source``, in their order, and keep them in ``target`` below a folder.

    Each is there before it is gone here. On one disk they are renamed. Files that are not there
    are passed over. On a local disk a power cut does not undo it.
    """
    waiting = iter(paths)
    while some := list(islice(waiting, _TOGETHER)):
        left = [p for p in some if not _renamed(source, p, target, f"{below}{p}")]
        if isinstance(source, LocalDirectory) and isinstance(target, LocalDirectory):
            there = [target.copy.path(f"{below}{path}") for path in some]
            paths = [*there, *map(source.copy.path, some)]
            with translate_os_errors("moving files of", paths[-1]):
                sync_folders(dict.fromkeys(map(os.path.dirname, paths)))
        map_in_threads(lambda path: keep_copy(source, path, target, below), left, 8, "seamark-move")
        if left:
            source.remove(left)


def keep_copy(source: Directory, path: str, target: Directory, below: str = "") -> None:
    """Put what a file holds into ``target``."""
    with suppress(FileNotFoundError):
        target.write(f"{below}{path}", source.read(path))


def _renamed(source: Directory, path: str, target: Directory, there: str) -> bool:
    """Whether a rename has moved the file, or there is none."""
    if not isinstance(source, LocalDirectory) or not isinstance(target, LocalDirectory):
        return False
    old, new = source.copy.path(path), target.copy.path(there)
    with translate_os_errors("moving a file to", new):
        make_folders(os.path.dirname(new))
        try:
            os.replace(old, new)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.EXDEV:  # on another disk
                return False
            raise
    return True
