"""What is read again and again costs little, and chains are followed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark import CheckpointManifest, open_store
from seamark.blobs.memory import MemoryBlobs
from seamark.capture.checkpoint_contents import Chain, packs_of
from seamark.errors import DamageError, RefusedError
from seamark.manifest import OperatorCheckpoint
from seamark.reports.verification import check_checkpoints
from seamark.state import StateStore, encode_batch
from seamark.store import CheckpointStore, cleanup, manifests, owner
from seamark.store.copy.run import copy_checkpoints
from seamark.store.layout import ObjectLayout
from seamark.store.retention import Verdict
from tests.support.counted_blobs import CountedBlobs


def test_an_owner_is_decoded_once_as_long_as_it_stays_the_same(tmp_path: Path) -> None:
    with open_store(tmp_path) as writer, open_store(tmp_path) as reader:
        writer.claim()
        writer.save(CheckpointManifest.new(1, epoch=1))
        before = reader.owner()
        assert reader.owner() is before
        writer.pin("release", 1)
        assert [*reader.owner().pins] == ["release"]
        assert [*before.pins] == []


def test_a_store_has_so_many_pins_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "MOST_PINS", 2)
    with open_store("memory://") as store:
        store.save(CheckpointManifest.new(1, epoch=1))
        for name in ("one", "two", "two"):
            store.pin(name, 1)
        with pytest.raises(RefusedError, match="2 pins"):
            store.pin("three", 1)
        store.unpin("one")
        store.pin("three", 1)


def test_a_prune_does_not_search_all_that_it_removes_for_each_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0

    class ComparedId(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = int.__hash__

    decide = cleanup._verdicts

    def decided(*facts: Any) -> list[Verdict]:
        verdicts = decide(*facts)
        newest = max(each.checkpoint_id for each in verdicts if not each.keep)  # is written down
        return [
            each
            if each.keep or each.checkpoint_id == newest
            else replace(each, checkpoint_id=ComparedId(each.checkpoint_id))
            for each in verdicts
        ]

    many = 200
    with open_store("memory://") as store:
        for number in range(1, many + 1):
            store.save(CheckpointManifest.new(number, epoch=number))
        monkeypatch.setattr(cleanup, "_verdicts", decided)
        assert store.prune(1) == many - 1
    assert compared < 10 * many


def test_a_copy_follows_a_long_chain_once() -> None:
    links = 60
    here, there = CountedBlobs(), CountedBlobs()
    source = CheckpointStore(here, ObjectLayout())
    source.save(CheckpointManifest.new(1, epoch=1))
    for i in range(2, links + 1):
        source.save(CheckpointManifest.new(i, epoch=i, is_incremental=True, parent_id=i - 1))
    here.forget()
    there.forget()
    results = copy_checkpoints(source, CheckpointStore(there, ObjectLayout()))
    assert [each.outcome for each in results] == ["copied"] * links
    assert here.reads < 5 * links
    assert there.reads < 10 * links


def test_a_sidecar_of_any_length_is_not_held_in_memory() -> None:
    with open_store("memory://") as store:
        saved = store.save_with_state(
            CheckpointManifest.new(
                1, epoch=1, operator_states={"log": OperatorCheckpoint.in_sidecar(0, 5)}
            ),
            [b"bytes"],
        )
        large = saved.replace(extra={**saved.extra, "state_bytes": 1 << 40})
        with pytest.raises(DamageError, match="is the most"):
            list(packs_of(store, large))


def test_partitioned_state_of_a_long_chain_is_read_once() -> None:
    links = 40
    here, there = CountedBlobs(), CountedBlobs()
    states = StateStore(here, prefix="state/", longest_chain=1000)
    store = CheckpointStore(here, ObjectLayout())
    parent = None
    for i in range(1, links + 1):
        with states.begin(i, parent=parent) as writer:
            writer.put("agg", i, b"state %d" % i)
            parent = writer.commit().checkpoint_id
        store.save(CheckpointManifest.new(i, i, table_store_checkpoint_path=f"state/{parent}"))

    def reads(look: Callable[[CheckpointStore], object]) -> int:
        here.forget()
        assert look(CheckpointStore(here, ObjectLayout()))
        return here.reads

    ids = range(1, links + 1)
    assert reads(lambda fresh: check_checkpoints(fresh, ids, read=ids)) < 8 * links
    assert reads(lambda fresh: fresh.recover_latest_validated().chosen_id) < 8 * links
    assert reads(lambda fresh: fresh.validate_checkpoint(links).valid) < 8 * links
    target = CheckpointStore(there, ObjectLayout())
    assert reads(lambda fresh: copy_checkpoints(fresh, target)) < 12 * links
    assert reads(lambda fresh: fresh.prune(5)) < 16 * links


def test_partitioned_state_of_a_long_chain_is_unpacked_once() -> None:
    links, blobs = 40, CountedBlobs()
    states = StateStore(blobs, prefix="state/", longest_chain=1000, pack_below=0)
    store = CheckpointStore(blobs, ObjectLayout())
    parent = None
    for i in range(1, links + 1):
        with states.begin(i, parent=parent) as writer:
            writer.put("agg", i, encode_batch([(f"state/0/{i}/1.delta", b"%d" % i)], version=3))
            parent = writer.commit().checkpoint_id
        path = f"state/{parent}"
        manifest = CheckpointManifest.new(i, i, table_store_checkpoint_path=path)
        store.save(manifest.replace(is_incremental=i > 1, parent_id=i - 1 or None))
    newest = store.load_by_id(links)
    assert newest is not None
    chain = Chain.load(store, newest)
    blobs.forget()
    files = [*chain.read(store)]
    assert files == [{f"state/0/{i}/1.delta": b"%d" % i} for i in range(1, links + 1)]
    assert blobs.reads == 2 * links  # a manifest and an object each


class _ParallelReads(MemoryBlobs):
    parallel_reads = 4


class _CountedPool(ThreadPoolExecutor):
    """Counts what is handed to it at once."""

    most = 0

    def map(self, fn: Any, *iterables: Any, **options: Any) -> Iterator[Any]:
        type(self).most = max(self.most, len(iterables[0]))
        return super().map(fn, *iterables, **options)


def test_manifests_are_not_all_read_ahead_of_whoever_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs, many = _ParallelReads(), 300
    store = CheckpointStore(blobs, ObjectLayout())
    for i in range(1, many + 1):
        store.save(CheckpointManifest.new(i, epoch=i))
    monkeypatch.setattr(manifests, "ThreadPoolExecutor", _CountedPool)
    read = store._parts.manifests.read_many(range(1, many + 1))
    assert [checkpoint_id for checkpoint_id, _ in read] == [*range(1, many + 1)]
    assert 1 < _CountedPool.most < many / 2
