"""Inodes that know which of their changes were fsynced, and what a power cut leaves of them.

A file's bytes are volatile until the file is fsynced. A directory's entries are volatile until that
directory is fsynced; a new directory is itself an entry of its parent. `after_power_cut` applies
these rules and nothing kinder: POSIX promises no more, and file systems differ in what they add.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

SECTOR = 512
_inode_numbers = count(2)


@dataclass(eq=False)
class File:
    """A regular file: the bytes that readers see, and those that the last fsync made durable."""

    mode: int
    mtime_ns: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    links: int = 0
    ino: int = field(default_factory=lambda: next(_inode_numbers))

    def sync(self) -> None:
        self.durable = bytes(self.data)


@dataclass(eq=False)
class Directory:
    """A directory: the entries that readers see, the durable ones, and the changes in between."""

    mode: int
    mtime_ns: int
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)
    joined: dict[int, Directory] = field(default_factory=dict)
    """By operation: the directory that an exchange has changed together with this one."""
    ino: int = field(default_factory=lambda: next(_inode_numbers))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()
        for operation, other in self.joined.items():
            for change in [each for each in other.pending if each.operation == operation]:
                change.apply_to(other.durable)
                other.pending.remove(change)
        self.joined.clear()

    def change(self, operation: int, name: str, node: Node | None, now_ns: int) -> None:
        """Let `name` mean `node`, or nothing; parts of one rename share one `operation`."""
        for inode, step in ((self.entries.get(name), -1), (node, 1)):
            if isinstance(inode, File):
                inode.links += step
        change = Change(operation, name, node)
        change.apply_to(self.entries)
        self.pending.append(change)
        self.mtime_ns = now_ns


Node: TypeAlias = File | Directory


@dataclass(frozen=True)
class Change:
    """One directory entry set or removed, not durable yet."""

    operation: int
    name: str
    node: Node | None

    def apply_to(self, entries: dict[str, Node]) -> None:
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


def walk(directory: Directory, path: str = "") -> Iterator[tuple[str, Directory, str, Node]]:
    """Every visible entry below `directory`, sorted: path, directory, name and node."""
    for name, node in sorted(directory.entries.items()):
        yield f"{path}/{name}", directory, name, node
        if isinstance(node, Directory):
            yield from walk(node, f"{path}/{name}")


def after_power_cut(root: Directory, survivors: random.Random | None) -> Directory:
    """A copy of the tree as the next boot finds it.

    Without `survivors` all that was not fsynced is gone. With it, each directory operation and
    each file's data flips a coin of its own, whatever their order was: the adversarial reading.
    """
    fates: dict[int, bool] = {}
    copies: dict[Node, Node] = {}

    def survives(operation: int) -> bool:
        if survivors is None:
            return False
        if operation not in fates:
            fates[operation] = survivors.random() < 0.5
        return fates[operation]

    def copy_of_file(file: File) -> File:
        data = file.durable
        if survivors is not None and file.data != file.durable:
            data = _unsynced_data(file.durable, bytes(file.data), survivors)
        return File(file.mode, file.mtime_ns, bytearray(data), data)

    def copy_of_directory(directory: Directory) -> Directory:
        copy = Directory(directory.mode, directory.mtime_ns)
        copies[directory] = copy
        entries = dict(directory.durable)
        for change in directory.pending:
            if survives(change.operation):
                change.apply_to(entries)
        for name, node in sorted(entries.items()):
            if isinstance(node, File):
                file = copies.get(node) or copies.setdefault(node, copy_of_file(node))
                copy.change(0, name, file, copy.mtime_ns)
            elif node not in copies:  # half a rename left it under two names: fsck keeps one
                copy.change(0, name, copy_of_directory(node), copy.mtime_ns)
        copy.mtime_ns = directory.mtime_ns
        copy.sync()
        return copy

    return copy_of_directory(root)


def _unsynced_data(old: bytes, new: bytes, chance: random.Random) -> bytes:
    """One of the contents that a disk may hold when `new` was written over `old` without fsync."""
    outcome = chance.choice(("old", "new", "truncated", "zero-filled", "mixed"))
    if outcome == "old":
        return old
    if outcome == "new":
        return new
    cut = chance.randrange(len(new) + 1)
    if outcome == "truncated":
        return new[:cut]
    if outcome == "zero-filled":
        return new[:cut].ljust(len(new), b"\0")
    before = old[: len(new)].ljust(len(new), b"\0")
    starts = range(0, len(new), SECTOR)
    return b"".join(chance.choice((before, new))[at : at + SECTOR] for at in starts)
