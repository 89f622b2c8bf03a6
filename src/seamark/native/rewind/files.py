"""Which files of a checkpoint directory belong to batches after a given one. Pure, by their names.

Each list is in the order in which the files leave: newest first, and the hidden checksum that
Hadoop keeps of a file before the file itself. A file without its checksum can be read; a checksum
without its file would spoil the next one of that name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from seamark.checkpoint_dir.places.directory import Tree
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
    spare = [path for path in tree.source_entries() if path not in needed]
    return [each for p in _newest_first(spare) for each in with_checksum(tree, SOURCES, p)]


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


def _newest_first(paths: Iterable[str]) -> list[str]:
    def number(path: str) -> int:
        match = _ENTRY.fullmatch(path)
        return int(match[2]) if match else -1

    return sorted(paths, key=number, reverse=True)


def with_checksum(tree: Tree, kind: str, path: str) -> list[Move]:
    """A file after the hidden checksum that Hadoop keeps of it."""
    folder, _, name = path.rpartition("/")
    hidden = f"{folder}/.{name}.crc" if folder else f".{name}.crc"
    there = [each for each in (hidden, path) if each in tree.entries]
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
