"""The batcher: what is added stays in the buffer until it is written, and is read back."""

from __future__ import annotations

import array
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pytest
from obstore.store import MemoryStore

from seamark import limits
from seamark.errors import DamageError, InvalidInputError
from seamark.state import BatchMetrics, CheckpointBatcher, decode_batch, encode_batch, lcb1
from seamark.state import batcher as batcher_module
from tests.state.support.objects import stored
from tests.state.support.reference import batch, framed, read_v2


class TestTheOtherSystemsBehaviours:
    """Its twelve tests, by their names."""

    def test_add_tracks_size(self) -> None:
        batcher = CheckpointBatcher(MemoryStore())
        assert (batcher.buffer_size(), len(batcher), batcher.is_empty()) == (0, 0, True)
        batcher.add("partition-0/agg", b"\x01\x02\x03")
        assert batcher.buffer_size() == 26
        batcher.add("é", b"")
        assert batcher.buffer_size() == 26 + 2 + 8
        assert (len(batcher), batcher.is_empty()) == (2, False)

    def test_should_flush_at_threshold(self) -> None:
        batcher = CheckpointBatcher(MemoryStore(), flush_threshold=100)
        batcher.add("k", bytes(90))
        assert not batcher.should_flush()
        batcher.add("", b"")
        assert batcher.buffer_size() == 107
        assert batcher.should_flush()
        exact = CheckpointBatcher(MemoryStore(), flush_threshold=100)
        exact.add("k", bytes(91))
        assert exact.should_flush()

    def test_flush_empty_is_noop(self) -> None:
        store = MemoryStore()
        batcher = CheckpointBatcher(store)
        batcher.flush(1)
        assert stored(store) == {}
        assert batcher.metrics() == BatchMetrics()
        assert batcher.load(1) == []

    def test_flush_writes_object(self) -> None:
        store = MemoryStore()
        batcher = CheckpointBatcher(store, "nodes/abc123/")
        batcher.add("k", b"v")
        batcher.flush(42)
        assert list(stored(store)) == ["nodes/abc123/checkpoints/batch-000042.lz4"]

    def test_lz4_roundtrip(self) -> None:
        store = MemoryStore()
        batcher = CheckpointBatcher(store)
        entries = [("a", bytes(10_000)), ("b", b""), ("", b"x")]
        for key, data in entries:
            batcher.add(key, data)
        batcher.flush(1)
        (data,) = stored(store).values()
        assert decode_batch(data) == read_v2(data) == batcher.load(1) == entries

    def test_metrics_recorded_on_flush(self) -> None:
        store = MemoryStore()
        batcher = CheckpointBatcher(store)
        batcher.add("a", bytes(1000))
        batcher.add("b", b"1")
        before = batcher.buffer_size()
        assert batcher.metrics() == BatchMetrics()
        batcher.flush(1)
        (data,) = stored(store).values()
        assert batcher.metrics() == BatchMetrics(
            batches_flushed=1,
            entries_flushed=2,
            bytes_before_compression=before,
            bytes_after_compression=len(data),
            put_count=1,
        )

    def test_metrics_accumulate_across_flushes(self) -> None:
        store = MemoryStore()
        batcher = CheckpointBatcher(store)
        for epoch in range(1, 4):
            for number in range(epoch):
                batcher.add(str(number), b"x")
            batcher.flush(epoch)
        metrics = batcher.metrics()
        assert (metrics.batches_flushed, metrics.entries_flushed, metrics.put_count) == (3, 6, 3)
        assert metrics.bytes_before_compression == 6 * 10
        assert metrics.bytes_after_compression == sum(map(len, stored(store).values()))

    def test_compression_reduces_size(self) -> None:
        batcher = CheckpointBatcher(MemoryStore())
        batcher.add("zeros", bytes(100_000))
        batcher.flush(1)
        metrics = batcher.metrics()
        assert metrics.bytes_after_compression < metrics.bytes_before_compression // 50

    def test_decode_invalid_magic(self) -> None:
        with pytest.raises(DamageError, match="invalid batch magic"):
            decode_batch(b"XXXX" + bytes(20))

    def test_decode_too_short(self) -> None:
        with pytest.raises(DamageError, match="batch too short for header"):
            decode_batch(b"LCB1")

    def test_decode_bad_version(self) -> None:
        with pytest.raises(DamageError, match="unsupported batch version 99"):
            decode_batch(b"LCB1\x63" + bytes(20))

    def test_flush_clears_buffer(self) -> None:
        batcher = CheckpointBatcher(MemoryStore(), flush_threshold=1)
        batcher.add("k", b"v")
        batcher.flush(1)
        assert (len(batcher), batcher.buffer_size()) == (0, 0)
        assert batcher.is_empty()
        assert not batcher.should_flush()


# What is in the buffer.


def test_adding_never_writes() -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store, flush_threshold=10)
    for number in range(100):
        batcher.add(str(number), bytes(100))
    assert stored(store) == {}
    assert len(batcher) == 100


def test_the_buffer_does_not_change_with_its_callers_memory() -> None:
    batcher = CheckpointBatcher(MemoryStore())
    data = bytearray(b"before")
    batcher.add("k", data)  # type: ignore[arg-type]
    data[:] = b"after!"
    batcher.flush(1)
    assert batcher.load(1) == [("k", b"before")]


def test_a_key_is_added_once_between_two_flushes() -> None:
    batcher = CheckpointBatcher(MemoryStore())
    batcher.add("k", b"1")
    with pytest.raises(InvalidInputError, match="'k' is in the batch already"):
        batcher.add("k", b"2")
    assert (len(batcher), batcher.buffer_size()) == (1, 10)
    batcher.flush(1)
    batcher.add("k", b"2")
    batcher.flush(2)
    assert (batcher.load(1), batcher.load(2)) == ([("k", b"1")], [("k", b"2")])


@pytest.mark.parametrize("data", [5, None, "text", [1, 2], object()])
def test_what_is_not_bytes_is_refused_and_leaves_nothing_behind(data: Any) -> None:
    batcher = CheckpointBatcher(MemoryStore())
    with pytest.raises((TypeError, InvalidInputError)):
        batcher.add("k", data)
    assert (len(batcher), batcher.buffer_size()) == (0, 0)


@pytest.mark.parametrize("key", ["\ud800", 5, None, b"k"])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    batcher = CheckpointBatcher(MemoryStore())
    with pytest.raises(InvalidInputError):
        batcher.add(key, b"")
    assert (len(batcher), batcher.buffer_size()) == (0, 0)


def test_the_size_is_in_bytes_whatever_a_view_counts_in() -> None:
    batcher = CheckpointBatcher(MemoryStore())
    batcher.add("k", memoryview(array.array("I", [1, 2, 3])))  # type: ignore[arg-type]
    assert batcher.buffer_size() == 1 + 12 + 8


def test_a_buffer_never_grows_beyond_what_can_be_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lcb1, "BATCH_LIMIT", 1000)
    monkeypatch.setattr(batcher_module, "BATCH_LIMIT", 1000)
    filled = CheckpointBatcher(MemoryStore(), flush_threshold=500)
    filled.add("a", bytes(600))
    with pytest.raises(InvalidInputError):
        filled.add("b", bytes(600))
    filled.flush(1)
    assert len(filled) == 0


@pytest.mark.parametrize("threshold", [0, -1, 2**40, 1.5, True, None])
def test_a_threshold_that_makes_no_sense_is_refused(threshold: Any) -> None:
    with pytest.raises(InvalidInputError, match="flush_threshold"):
        CheckpointBatcher(MemoryStore(), flush_threshold=threshold)


@pytest.mark.parametrize("epoch", [-1, 2**64, "7", 1.0, True, None])
def test_an_epoch_that_makes_no_sense_is_refused(epoch: Any) -> None:
    batcher = CheckpointBatcher(MemoryStore())
    batcher.add("k", b"v")
    batcher.flush(700_000)
    batcher.add("k", b"v")
    with pytest.raises(InvalidInputError, match="epoch"):
        batcher.flush(epoch)
    assert len(batcher) == 1
    with pytest.raises(InvalidInputError, match="epoch"):
        batcher.load(epoch)


def test_the_metrics_are_a_copy() -> None:
    batcher = CheckpointBatcher(MemoryStore())
    before = batcher.metrics()
    batcher.add("k", b"v")
    batcher.flush(1)
    assert before == BatchMetrics()
    with pytest.raises(AttributeError):
        before.put_count = 5  # type: ignore[misc]
    assert msgspec.to_builtins(batcher.metrics())["put_count"] == 1


# Parts.


def test_a_second_flush_of_an_epoch_does_not_overwrite_the_first() -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    for number in range(12):
        batcher.add(str(number), b"x")
        batcher.flush(7)
    assert len(stored(store)) == 12
    assert "checkpoints/batch-000007.lz4" in stored(store)
    assert batcher.load(7) == [(str(number), b"x") for number in range(12)]


def test_one_content_flushed_twice_is_there_twice() -> None:
    batcher = CheckpointBatcher(MemoryStore())
    for _ in range(2):
        batcher.add("k", b"same")
        batcher.flush(7)
    assert batcher.load(7) == [("k", b"same")] * 2


def test_epochs_do_not_mix() -> None:
    batcher = CheckpointBatcher(MemoryStore())
    epochs = [0, 1, 10, 11, 100_001, 1_000_001, 1_000_000, 2**64 - 1, 1, 10]
    for number, epoch in enumerate(epochs):
        batcher.add(str(number), b"")
        batcher.flush(epoch)
    for epoch in set(epochs):
        found = [int(key) for key, _ in batcher.load(epoch)]
        assert [epochs[number] for number in found] == [epoch] * len(found)
    assert sum(len(batcher.load(epoch)) for epoch in set(epochs)) == len(epochs)


def test_prefixes_do_not_mix() -> None:
    store = MemoryStore()
    batchers = {prefix: CheckpointBatcher(store, prefix) for prefix in ("", "a/", "a/b/", "b/")}
    for prefix, batcher in batchers.items():
        batcher.add(prefix, b"")
        batcher.flush(1)
    assert {prefix: b.load(1) for prefix, b in batchers.items()} == {
        prefix: [(prefix, b"")] for prefix in batchers
    }


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_part_below_the_last_is_an_error_that_names_it(lost: int) -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    names: list[str] = []
    for number in range(4):
        before = set(stored(store))
        batcher.add(str(number), b"")
        batcher.flush(7)
        names += set(stored(store)) - before
    obstore.delete(store, names[lost - 1])
    with pytest.raises(DamageError, match=f"{names[lost - 1]} is missing"):
        batcher.load(7)


def test_a_damaged_part_is_an_error_that_names_it() -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    batcher.add("k", b"v")
    batcher.flush(7)
    obstore.put(store, "checkpoints/batch-000007.lz4", b"LCB1" + bytes(30))
    with pytest.raises(DamageError, match=r"^checkpoints/batch-000007\.lz4: unsupported batch"):
        batcher.load(7)


@pytest.mark.parametrize("version", [2, 3])
def test_all_parts_of_an_epoch_unpack_to_so_much_together_and_no_more(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_FLOOR", 1 << 20)
    data = encode_batch([("k", bytes(300_000))], version)
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    for part in range(1, 101):
        suffix = f"-part-{part}" if part > 1 else ""
        obstore.put(store, f"checkpoints/batch-000007{suffix}.lz4", data)
        if part == 4:
            assert len(batcher.load(7)) == 4
    decoded = 0

    def counted(*about: Any, **options: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return decode_batch(*about, **options)

    monkeypatch.setattr(batcher_module, "decode_batch", counted)
    with pytest.raises(DamageError, match=r"batch-000007-part-5\.lz4: the parts up to this one"):
        batcher.load(7)
    assert decoded == 4


def test_all_parts_of_an_epoch_repeat_so_many_keys_together_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RECORDS_FLOOR", 25)
    monkeypatch.setattr(limits, "BYTES_PER_RECORD", 1 << 20)
    store = MemoryStore()
    data = batch(framed([(b"k", b"v")] * 11), 11)
    for part, suffix in enumerate(("", "-part-2", "-part-3"), 1):
        obstore.put(store, f"checkpoints/batch-000007{suffix}.lz4", data)
        if part < 3:
            assert CheckpointBatcher(store).load(7) == [("k", b"v")] * part
    with pytest.raises(DamageError, match=r"part-3\.lz4: batch repeats its keys"):
        CheckpointBatcher(store).load(7)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("handles", [1, 12])
def test_what_is_flushed_in_many_parts_can_be_loaded_however_much_it_would_shrink(
    version: int, handles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_FLOOR", 1 << 20)
    store = MemoryStore()
    batchers = [CheckpointBatcher(store, version=version) for _ in range(handles)]
    for part in range(12):
        batcher = batchers[part % handles]
        batcher.add(f"{part}", bytes(300_000))
        batcher.flush(7)
    assert [key for key, _ in batchers[0].load(7)] == [f"{part}" for part in range(12)]
    sizes = [len(data) for _, data in sorted(stored(store).items())]
    assert sum(size > 300_000 for size in sizes) == 1, "plain only where it must be"


def test_a_flush_beside_a_damaged_part_is_a_flush() -> None:
    store = MemoryStore()
    obstore.put(store, "checkpoints/batch-000007.lz4", b"no batch")
    batcher = CheckpointBatcher(store)
    batcher.add("k", b"v")
    batcher.flush(7)
    assert decode_batch(stored(store)["checkpoints/batch-000007-part-2.lz4"]) == [("k", b"v")]


def test_a_batch_of_the_other_system_is_loaded() -> None:
    store = MemoryStore()
    for version in (1, 2):
        data = batch(framed([(b"k", b"%d" % version)]), 1, version=version)
        obstore.put(store, f"nodes/x/checkpoints/batch-{version:06}.lz4", data)
    batcher = CheckpointBatcher(store, "nodes/x/")
    assert [batcher.load(version) for version in (1, 2)] == [[("k", b"1")], [("k", b"2")]]


def test_version_3_is_written_when_asked_for() -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store, version=3)
    batcher.add("k", b"v")
    batcher.flush(1)
    (data,) = stored(store).values()
    assert data[4] == 3
    assert CheckpointBatcher(store).load(1) == [("k", b"v")]
    with pytest.raises(InvalidInputError, match="version"):
        CheckpointBatcher(store, version=4)


# Prefixes that cannot work as they are.


@pytest.mark.parametrize("prefix", ["/nodes/", "a//b/", "../x/", "./", "x/../y/", "a\x00b/"])
@pytest.mark.parametrize("kind", ["object", "path"])
def test_a_prefix_works_or_is_refused_and_never_leads_elsewhere(
    prefix: str, kind: str, tmp_path: Path
) -> None:
    root = tmp_path / "a" / "root"
    root.mkdir(parents=True)
    try:
        batcher = CheckpointBatcher(MemoryStore() if kind == "object" else root, prefix)
    except InvalidInputError:
        return
    batcher.add("k", b"v")
    batcher.flush(1)
    assert batcher.load(1) == [("k", b"v")]
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and not p.is_relative_to(root)]
    assert outside == []
