"""Of checkpoints that build on each other all is read once, and nothing is overlooked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from seamark._common.parallel import map_in_threads
from seamark.state import ReadStates, StateStore, object_looks, read_states
from seamark.state.resolution import Step
from tests.state.support.chains import chain
from tests.support.counted_blobs import CountedBlobs

LINKS = 30


def test_a_long_chain_is_read_once_however_many_are_verified(
    blobs: CountedBlobs, store: StateStore
) -> None:
    ids = chain(store, LINKS)
    blobs.forget()
    known = ReadStates()
    results = [store.verify(checkpoint_id, known=known) for checkpoint_id in reversed(ids)]
    assert blobs.reads + blobs.streams == 2 * LINKS  # a manifest and an object each
    assert [(each.valid, each.objects) for each in results] == [
        (True, LINKS - place) for place in range(LINKS)
    ]


def test_what_is_damaged_is_read_once_and_told_of_all_that_build_on_it(
    blobs: CountedBlobs, store: StateStore
) -> None:
    ids = chain(store, LINKS)
    key = next(
        entry.key
        for entry in blobs.entries(f"checkpoints/{ids[10]}/")
        if not entry.key.endswith("manifest.json")
    )
    blobs.delete([key])
    blobs.create(key, b"something else")
    blobs.forget()
    known = ReadStates()
    valid = [store.verify(checkpoint_id, known=known).valid for checkpoint_id in ids]
    assert valid == [True] * 10 + [False] * (LINKS - 10)
    assert blobs.reads + blobs.streams == 2 * LINKS


def test_an_object_of_many_checkpoints_is_given_once_wherever_it_is_named(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, walked = chain(store, LINKS), 0
    for epoch in range(LINKS, 2 * LINKS):  # siblings; one of them builds on none
        with store.begin(epoch, parent=ids[LINKS - 1], rebase=epoch == LINKS) as writer:
            writer.put("agg", 0, b"anew %d" % epoch)
            ids.append(writer.commit().checkpoint_id)
    steps = Step.newest_first

    def counted(step: Step) -> Iterator[Step]:
        nonlocal walked
        for each in steps(step):
            walked += 1
            yield each

    monkeypatch.setattr(Step, "newest_first", counted)
    known = ReadStates()
    given = [[*store.new_links(checkpoint_id, known)] for checkpoint_id in ids]
    assert [len(links) for links in given] == [1] * (2 * LINKS)
    walked = 0
    known = ReadStates()
    assert len([*store.new_links(ids[LINKS - 1], known)]) == LINKS
    assert walked == LINKS
    assert not [*store.new_links(ids[LINKS - 1], known)]
    assert walked == LINKS


def test_a_new_pass_sees_what_was_damaged_since(blobs: CountedBlobs, store: StateStore) -> None:
    ids = chain(store, LINKS)
    assert store.verify(ids[-1], known=ReadStates()).valid
    blobs.delete([f"checkpoints/{ids[3]}/manifest.json"])
    assert f"{ids[3]}" in store.verify(ids[-1], known=ReadStates()).issues[0]


def test_presence_is_no_proof_of_the_bytes(blobs: CountedBlobs, store: StateStore) -> None:
    ids = chain(store, LINKS)
    known = ReadStates()
    for entry in list(blobs.entries(f"checkpoints/{ids[0]}/")):
        if not entry.key.endswith("manifest.json"):
            blobs.delete([entry.key])
            blobs.create(entry.key, b"?" * entry.size)
    assert store.verify(ids[-1], read_data=False, known=known).valid
    assert not store.verify(ids[-1], known=known).valid


def test_of_very_many_the_first_are_forgotten_and_read_again(
    blobs: CountedBlobs, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_states, "_MOST_ENTRIES", 10)
    ids = chain(store, LINKS)
    known = ReadStates()
    assert all(store.verify(checkpoint_id, known=known).valid for checkpoint_id in ids)
    assert len(known.manifests) == 5  # each is one, with one entry


def test_copies_of_many_read_a_long_chain_once(blobs: CountedBlobs, store: StateStore) -> None:
    ids = chain(store, LINKS)
    there = CountedBlobs()
    target = StateStore(there)
    blobs.forget()
    known = ReadStates()
    assert sum(store.copy(checkpoint_id, target, known) for checkpoint_id in ids) == LINKS
    assert (
        blobs.reads + blobs.streams == 3 * LINKS
    )  # each manifest to follow the chain, and as bytes
    assert target.verify(ids[-1]).valid


def test_no_thread_is_asked_for_an_object_that_was_looked_at(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, known, asked = chain(store, LINKS), ReadStates(), 0

    def counted(work: Any, items: Any, threads: int, name: str) -> list[Any]:
        nonlocal asked
        asked += len(items)
        return map_in_threads(work, items, threads, name)

    monkeypatch.setattr(object_looks, "map_in_threads", counted)
    assert all(store.verify(checkpoint_id, known=known).valid for checkpoint_id in reversed(ids))
    assert asked == LINKS
