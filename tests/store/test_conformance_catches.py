"""The conformance suites are worth something: each rule catches who breaks it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from seamark.testing import BlobsConformance
from tests.store.support import broken_backends, broken_stores
from tests.store.support.conformance.suite import StoreConformance

WEAKNESSES = {
    "test_the_checksum_is_kept_by_an_update",
    "test_the_loser_of_a_create_is_told",
    "test_the_pointer_never_moves_back",
    "test_a_lost_pointer_is_not_a_fresh_start",
    "test_prune_counts_only_valid_checkpoints",
    "test_prune_keeps_the_parents_of_what_it_keeps",
    "test_clean_up_leaves_a_save_in_flight",
    "test_all_damaged_is_not_a_fresh_start",
    "test_a_zombie_that_saves_a_pruned_id_is_refused",
    "test_a_zombies_late_write_of_a_pruned_id_is_invisible",
}


def rules_of(suite: type) -> list[str]:
    return sorted(name for name in dir(suite) if name.startswith("test_"))


def call(suite: type, rule: str, fixtures: dict[str, object]) -> None:
    """Run one test of a suite with these fixtures."""
    test: Callable[..., None] = getattr(suite(), rule)
    test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


def on_backend(backend: type[MemoryBlobs]) -> dict[str, object]:
    blobs = backend()
    return {"blobs": blobs, "second_handle": blobs}


def on_store(kind: type[CheckpointStore]) -> dict[str, object]:
    blobs, layout = MemoryBlobs(), ObjectLayout()

    def open_handle(*, keep: int | None = None, vnode_count: int | None = None) -> CheckpointStore:
        return kind(blobs, layout, keep=keep, vnode_count=vnode_count)

    return {"blobs": blobs, "layout": layout, "open_handle": open_handle}


def cases(breaks: dict[str, list[Any]]) -> list[Any]:
    pairs = [(rule, broken) for rule, every in breaks.items() for broken in every]
    return [pytest.param(rule, broken, id=broken.__name__) for rule, broken in pairs]


@pytest.mark.parametrize(("rule", "backend"), cases(broken_backends.BREAKS))
def test_a_broken_backend_is_caught_by_its_rule(rule: str, backend: type[MemoryBlobs]) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a failed test, whatever it raises
        call(BlobsConformance, rule, on_backend(backend))
    assert not isinstance(caught.value, TypeError | AttributeError | NameError)


@pytest.mark.parametrize(("promise", "store"), cases(broken_stores.BREAKS))
def test_a_broken_store_is_caught_by_its_promise(
    promise: str, store: type[CheckpointStore]
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a failed test, whatever it raises
        call(StoreConformance, promise, on_store(store))
    assert not isinstance(caught.value, TypeError | AttributeError | NameError)


@pytest.mark.parametrize("rule", broken_backends.BREAKS)
def test_a_healthy_backend_passes(rule: str) -> None:
    call(BlobsConformance, rule, on_backend(MemoryBlobs))


@pytest.mark.parametrize("promise", broken_stores.BREAKS)
def test_a_healthy_store_passes(promise: str) -> None:
    call(StoreConformance, promise, on_store(CheckpointStore))


def test_every_rule_has_a_backend_that_breaks_it() -> None:
    assert sorted(broken_backends.BREAKS) == rules_of(BlobsConformance)


def test_every_weakness_of_the_past_has_a_store_that_has_it() -> None:
    assert broken_stores.BREAKS.keys() >= WEAKNESSES
    assert set(rules_of(StoreConformance)) >= broken_stores.BREAKS.keys()
