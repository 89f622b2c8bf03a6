"""A checkpoint directory that grows batch by batch while maintenance removes what is old."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seamark.capture.batches import batch_at
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.native.restore import restore_directory
from seamark.store import open_store
from tests.checkpoint_dir.support.directories import QUERY, offsets_text, source_entry, state_of

PARTITIONS = 2
SNAPSHOT_EACH = 3
RETAINED = 2


class GrowingDirectory:
    """Does to a directory what an aggregation on the HDFS-backed provider does, in its order."""

    def __init__(self, root: Path, query_id: str = QUERY) -> None:
        self.root = root
        self.next_batch = 0
        info = {
            "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
            "stateStoreInfo": [
                {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": PARTITIONS}
            ],
        }
        self.put("metadata", json.dumps({"id": query_id}).encode())
        self.put("state/0/_metadata/metadata", f"v1\n{json.dumps(info)}".encode())

    def put(self, path: str, data: bytes) -> None:
        there = self.root / path
        there.parent.mkdir(parents=True, exist_ok=True)
        hidden = there.parent / f".{there.name}.tmp"
        hidden.write_bytes(data)
        os.replace(hidden, there)

    def run_batch(self) -> int:
        batch, self.next_batch = self.next_batch, self.next_batch + 1
        self.put(f"sources/0/{batch}", source_entry(batch).encode())
        self.put(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
        version = batch + 1
        for partition in range(PARTITIONS):
            here = f"state/0/{partition}/{version}"
            self.put(f"{here}.delta", state_of(partition, version))
            if version % SNAPSHOT_EACH == 0:
                self.put(f"{here}.snapshot", b"all of " + state_of(partition, version))
        self.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        return batch

    def run_batches(self, count: int) -> GrowingDirectory:
        for _ in range(count):
            self.run_batch()
        return self

    def maintain(self) -> None:
        """Remove the logs of all but the last batches, and all state that these do not need."""
        oldest = self.next_batch - RETAINED
        for log in ("offsets", "commits"):
            for number in _numbers(self.root / log):
                if number < oldest - 1:
                    (self.root / log / str(number)).unlink(missing_ok=True)
        for partition in range(PARTITIONS):
            folder = self.root / f"state/0/{partition}"
            names = os.listdir(folder) if folder.is_dir() else []
            bases = [int(n[:-9]) for n in names if n.endswith(".snapshot") and n[0] != "."]
            base = max((version for version in bases if version <= oldest + 1), default=0)
            for name in names:
                version, _, kind = name.partition(".")
                if version.isdigit() and (
                    int(version) < base or (int(version) == base and kind == "delta")
                ):
                    (folder / name).unlink(missing_ok=True)

    @contextmanager
    def running(
        self, pause: float = 0.01, may_go_on: Callable[[], bool] = lambda: True
    ) -> Iterator[None]:
        """Run batches on one thread, as long as they may go on, and maintenance on another one."""
        over = threading.Event()

        def write() -> None:
            while not over.wait(pause):
                if may_go_on():
                    self.run_batch()

        def clean() -> None:
            while not over.wait(pause / 4):
                self.maintain()

        threads = [threading.Thread(target=each) for each in (write, clean)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


def _numbers(folder: Path) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.is_dir() else []


def batches_restored_from(store: Path | str, scratch: Path) -> list[int]:
    """Restore every checkpoint of a store and see that it is its batch, byte for byte."""
    batches = []
    with open_store(store) as opened:
        for number in opened.list_ids():
            target = LocalDirectory(scratch / f"restored-{number}")
            batch = restore_directory(opened, number, target).batch
            check_is_batch(target, batch)
            batches.append(batch)
    return batches


def check_is_batch(directory: LocalDirectory, batch: int) -> None:
    tree = Tree.of(directory)
    at = batch_at(tree, batch)  # refuses a hole
    assert max(tree.batches("commits")) == batch
    assert at.logs[f"offsets/{batch}"] == offsets_text(f'{{"logOffset":{batch}}}').encode()
    assert tree.read_text(f"sources/0/{batch}") == source_entry(batch)
    needed = {path for need in at.needs for path in need.paths}
    assert {path.split("/")[2] for path in needed} == {str(n) for n in range(PARTITIONS)}
    for path in needed:
        _, _, partition, name = path.split("/")
        version, _, kind = name.partition(".")
        whole = b"all of " if kind == "snapshot" else b""
        assert directory.read(path) == whole + state_of(int(partition), int(version))
