"""Directories to be rewound, and places that fail at any operation."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

from seamark.checkpoint_dir.file_logs.sink_log import rewound
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import DamageError
from seamark.native.rewind.files import SINK_LOG
from seamark.native.rewind.rewind import SinkPlan, sink_plan
from seamark.spark.batch_log import parse_offsets
from tests.checkpoint_dir.support.directories import make_copy, source_entry

BATCHES = 7


_one_at_a_time = threading.Lock()


def name_provider(entry: Path, provider: str) -> None:
    """Have an entry of an offset log name a state store provider."""
    head, metadata, *lines = entry.read_text().split("\n")
    fields = json.loads(metadata)
    fields.setdefault("conf", {})["spark.sql.streaming.stateStore.providerClass"] = provider
    entry.write_text("\n".join([head, json.dumps(fields), *lines]))


class Stopped(Exception):
    """The process ended here."""


class Stopping(Directory):
    """A directory, and what is opened beside it, where only so many operations succeed."""

    def __init__(self, inner: Directory, left: list[int]) -> None:
        self.inner = inner
        self.url, self.uri = inner.url, inner.uri
        self._left = left

    def _step(self) -> None:
        with _one_at_a_time:
            if self._left[0] == 0:
                raise Stopped
            self._left[0] -= 1

    def listing(self) -> dict[str, FileEntry]:
        return self.inner.listing()

    def folders(self) -> Collection[str]:
        return self.inner.folders()

    def newest_commit(self) -> int | None:
        return self.inner.newest_commit()

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def write(self, path: str, data: bytes) -> None:
        self._step()
        self.inner.write(path, data)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._step()
            self.inner.remove([path])

    def sibling(self, suffix: str) -> Directory:
        return Stopping(self.inner.sibling(suffix), self._left)


def make_directory(root: Path) -> LocalDirectory:
    """Seven batches whose source log was compacted at entry 5, and what Hadoop adds on a disk."""
    copy = make_copy(root, BATCHES)
    lines = [source_entry(number).partition("\n")[2] for number in range(6)]
    for number in range(6):
        copy.remove(f"sources/0/{number}")
    copy.write("sources/0/5.compact", "\n".join(["v1", *lines]).encode())
    copy.write("offsets/7", copy.read("offsets/6").replace(b":6}", b":7}"))
    copy.write("sources/0/7", source_entry(7).encode())
    copy.write("state/0/0/6.snapshot", b"of the later history")
    copy.write("state/0/1/8.delta", b"of the batch in flight")
    for path in ("offsets/6", "commits/6", "commits/2", "state/0/0/7.delta", "sources/0/6"):
        folder, name = path.rsplit("/", 1)
        (root / folder / f".{name}.crc").write_bytes(b"crc\0 of " + path.encode())
    return LocalDirectory(root)


def make_sink(root: Path) -> LocalDirectory:
    """The log of a file sink that has all batches."""
    folder = root / SINK_LOG
    folder.mkdir(parents=True)
    for number in range(BATCHES):
        line = f'{{"path":"file:///out/{number}","size":1,"action":"add"}}'
        (folder / str(number)).write_text(f"v1\n{line}", encoding="utf-8")
    return LocalDirectory(folder)


def plan_of_sink(log: Directory, batch: int) -> SinkPlan:
    tree = Tree.of(log)
    names = list(tree.names(""))
    return sink_plan(tree, rewound(names, lambda name: tree.read(name).decode(), batch))


def contents(directory: Directory) -> dict[str, bytes]:
    """Every file, Hadoop's checksums left out."""
    return {
        path: directory.read(path)
        for path in directory.listing()
        if not path.rsplit("/", 1)[-1].startswith(".")
    }


def is_refused(files: CheckpointFiles) -> bool:
    """Whether Spark fails at its first step: reading the newest entry of the offset log."""
    newest = files.batches("offsets")[-1]
    try:
        parse_offsets(files.read_text(f"offsets/{newest}") or "")
    except DamageError:
        return True
    return False
