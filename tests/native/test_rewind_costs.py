"""Saying which batches can be had takes a bounded time, whatever lies in a directory."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import lz4.block
import pytest

from seamark import CheckpointManifest, limits, open_store
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import RefusedError
from seamark.limits import MIB
from seamark.manifest import OperatorCheckpoint
from seamark.native.rewind.rewind import possible_batches
from seamark.native.rewind.targets import RewindRequest, planned_rewind, shared_history
from seamark.state import pack
from tests.checkpoint_dir.support.directories import make_copy


class Counted(LocalDirectory):
    """Notes what is read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return super().read(path)


def test_no_log_is_read_again_for_each_batch_that_is_tried(tmp_path: Path) -> None:
    directory = Counted(make_copy(tmp_path / "checkpoint", 20).root)
    tree = Tree.of(directory)
    assert possible_batches(tree) == ([*range(20)], None)
    newest = f"offsets/{tree.batches('offsets')[-1]}"  # looked at first, for what was begun
    assert {path for path, times in directory.reads.items() if times > 1} <= {newest}


def test_of_very_many_batches_the_newest_are_tried_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree.of(LocalDirectory(make_copy(tmp_path / "checkpoint", 15).root))
    monkeypatch.setattr(limits, "TRYING_SECONDS", -1)
    assert possible_batches(tree) == ([14], 14)
    with (
        pytest.raises(RefusedError, match="batches before 14 were not tried"),
        planned_rewind(tree, RewindRequest(99), None),
    ):
        pass


def test_trying_very_many_batches_ends_after_a_moment_of_processor_time(tmp_path: Path) -> None:
    directory = LocalDirectory(make_copy(tmp_path / "checkpoint", 6).root)
    few = Tree.of(directory)
    far = {f"commits/{10**5 + n}": few.entries["commits/5"] for n in range(50_000)}
    many = Tree(directory, {**few.entries, **far})
    before = time.process_time()
    found = possible_batches(many)
    assert time.process_time() - before < limits.TRYING_SECONDS + 4
    assert found.batches == []
    assert found.not_before is not None


@pytest.mark.parametrize(
    ("large", "most"),
    [("commits/{batch}", 80 * MIB), ("commits/1{batch:06}", 8 * MIB)],
    ids=["compared", "not compared"],
)
def test_the_logs_of_all_checkpoints_of_a_store_are_not_held_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: str, most: int
) -> None:
    def compressed(data: list[bytes], *_: int) -> list[bytes]:
        return [lz4.block.compress(each, store_size=False) for each in data]

    count = 8
    copy = make_copy(tmp_path / "checkpoint", count + 1)
    query_id = json.loads(copy.read("metadata"))["id"]
    with open_store(tmp_path / "store") as store:
        monkeypatch.setattr(pack, "_blocks", compressed)  # ours would leave it as it is
        for batch in range(1, count + 1):
            builder = pack.PackBuilder()
            builder.add(f"offsets/{batch}", copy.read(f"offsets/{batch}"))
            builder.add(large.format(batch=batch), bytes(31 * MIB))
            logs = OperatorCheckpoint.inline(b"".join(builder.finish()))
            native = {"query_id": query_id, "follows": batch - 1}
            store.save(
                CheckpointManifest.new(
                    batch, batch, operator_states={"log": logs}, batch=batch, native=native
                )
            )
        for batch in range(count + 1):
            copy.remove(f"commits/{batch}")
        tree = Tree.of(LocalDirectory(copy.root))
        tracemalloc.start()
        try:
            shared = shared_history(tree, store)
            assert tracemalloc.get_traced_memory()[1] < most
        finally:
            tracemalloc.stop()
    assert count in shared.proven
