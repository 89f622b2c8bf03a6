"""Owning a store: claims, fences, tombstones, superseded ranges."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import (
    DamageError,
    FencedError,
    FormatTooNewError,
    InvalidInputError,
    RefusedError,
)
from seamark.store import CheckpointStore
from seamark.store.layout import OWNER_KEY, Layout
from seamark.store.owner import encode_owner
from tests.store.support.examples import (
    OpenHandle,
    child,
    example,
    flip,
    outcomes,
    overwrite,
    raw_document,
)


def writes(store: CheckpointStore) -> list[Callable[[], object]]:
    """Everything that only the owner may do to a store that holds checkpoint 1."""
    return [
        store.check_claim,
        lambda: store.save(example(store.next_id())),
        lambda: store.save_with_state(example(store.next_id()), [b"state"]),
        lambda: store.save_state_data(store.next_id(), [b"state"]),
        lambda: store.update_manifest(example(1)),
        lambda: store.prune(1),
        lambda: store.cleanup_orphans(0),
    ]


class StoreClaims:
    """claim, check_claim, supersede, owner."""

    def test_generations_grow_with_each_claim(self, open_handle: OpenHandle) -> None:
        claims = [open_handle().claim(writer="w") for _ in range(3)]
        assert [claim.generation for claim in claims] == [1, 2, 3]
        assert len({claim.timeline for claim in claims}) == 1
        owner = open_handle().owner()
        assert (owner.generation, owner.timeline) == (3, claims[0].timeline)
        assert owner.writer.startswith("w ")

    def test_the_owner_may_write(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        claim = store.claim()
        for _ in range(3):
            saved = store.save_with_state(example(store.next_id()), [b"state"])
            assert saved.extra["generation"] == claim.generation
            assert saved.extra["timeline"] == claim.timeline
        assert open_handle().list() == [(1, 1), (2, 2), (3, 3)]
        assert all(open_handle().validate_checkpoint(number).valid for number in (1, 2, 3))

    def test_a_writer_that_lost_its_claim_is_fenced(self, open_handle: OpenHandle) -> None:
        old, new = open_handle(), open_handle()
        old.claim()
        old.save(example(1))
        new.claim()
        for write in writes(old):
            with pytest.raises(FencedError):
                write()
        with pytest.raises(FencedError):
            old.supersede(1, 1)
        assert open_handle().list() == [(1, 1)]
        new.save(example(new.next_id()))
        assert len(open_handle().list()) == 2

    def test_a_handle_without_a_claim_is_fenced_while_one_is_held(
        self, open_handle: OpenHandle
    ) -> None:
        owner = open_handle()
        owner.claim()
        owner.save(example(1))
        for write in writes(open_handle()):
            with pytest.raises(FencedError):
                write()
        assert open_handle().list() == [(1, 1)]

    def test_closing_gives_the_claim_back(self, open_handle: OpenHandle) -> None:
        owner = open_handle()
        owner.claim()
        owner.save(example(1))
        owner.close()
        store = open_handle()
        store.save(example(store.next_id()))
        assert len(open_handle().list()) == 2

    def test_a_claim_that_decided_nothing_leaves_no_trace_in_the_lists(
        self, open_handle: OpenHandle
    ) -> None:
        open_handle().save(example(1))
        for _ in range(3):
            store = open_handle()
            store.claim()
            for reader in (store, open_handle()):
                assert (reader.list(), reader.list_ids()) == ([(1, 1)], [1])
                assert reader.load_by_id(2) is None
                assert reader.recover_latest_validated().chosen_id == 1
                assert reader.recover_latest_validated().skipped == []
            store.close()

    def test_a_claimed_but_empty_store_is_a_fresh_start(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.claim()
        assert store.recover_latest_validated().fresh_start
        assert store.load_latest() is None

    def test_a_fenced_writers_late_manifest_does_not_count(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        old, new = open_handle(), open_handle()
        generation = old.claim().generation
        old.save(example(1))
        late = new.claim().tombstone_id + 1
        # the old writer's request was under way for a long time and arrives only now
        blobs.create(layout.manifest(late), raw_document(example(late), generation=generation))
        reader = open_handle()
        assert reader.list() == [(1, 1)]
        assert reader.load_by_id(late) is None
        latest = reader.load_latest()
        assert latest is not None
        assert latest.checkpoint_id == 1
        report = reader.recover_latest_validated()
        assert (report.chosen_id, [number for number, _ in report.skipped]) == (1, [late])
        saved = new.save(example(new.next_id()))
        assert saved.checkpoint_id != late
        assert open_handle().load_by_id(saved.checkpoint_id) == saved

    def test_a_tombstone_keeps_the_next_id_from_the_writer_before(
        self, open_handle: OpenHandle
    ) -> None:
        old, new = open_handle(), open_handle()
        old.claim()
        old.save(example(1))
        tombstone = new.claim().tombstone_id
        with pytest.raises(FencedError):
            old.save(example(tombstone))
        new.save(example(tombstone, epoch=9))
        assert open_handle().list() == [(1, 1), (tombstone, 9)]

    def test_of_claims_that_race_one_is_left(self, open_handle: OpenHandle) -> None:
        handles = [open_handle() for _ in range(4)]
        outcomes([handle.claim for handle in handles])
        told = outcomes([handle.check_claim for handle in handles])
        # one that lost while it was claiming has no claim, and is fenced by the one that has
        assert sum(error is None for error in told) == 1

    def test_a_store_belongs_to_one_pipeline(self, open_handle: OpenHandle) -> None:
        open_handle().claim(pipeline="orders")
        assert open_handle().owner().pipeline == "orders"
        with pytest.raises(RefusedError, match="orders"):
            open_handle().claim(pipeline="payments")
        open_handle().claim(pipeline="orders")
        open_handle().claim()

    def test_superseded_checkpoints_are_never_chosen(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        before = store.claim()
        for number in (1, 2, 3):
            store.save(example(number))
        after = store.supersede(2, 3)
        assert after.timeline != before.timeline
        report = store.recover_latest_validated()
        assert report.chosen_id == 1
        assert [number for number, _ in report.skipped] == [3, 2]
        latest = store.load_latest()
        assert latest is not None
        assert latest.checkpoint_id == 1
        rolled_back = store.save(example(store.next_id(), epoch=1))
        assert rolled_back.checkpoint_id == 4
        assert rolled_back.extra["timeline"] == after.timeline
        assert open_handle().recover_latest_validated().chosen_id == 4

    def test_a_damaged_superseding_checkpoint_does_not_revive_the_superseded(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        store.claim()
        for number in (1, 2, 3):
            store.save(example(number))
        store.supersede(2, 3)
        store.save(example(4, epoch=1))
        flip(blobs, layout.manifest(4), 40)
        report = open_handle().recover_latest_validated()
        assert report.chosen_id == 1
        assert [number for number, _ in report.skipped] == [4, 3, 2]

    def test_superseded_checkpoints_still_serve_as_parents(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.claim()
        store.save(example(1))
        store.save(example(2))
        store.supersede(2, 2)
        store.save(child(3, parent_id=2))
        assert open_handle().recover_latest_validated().chosen_id == 3

    def test_superseding_needs_a_claim_and_a_range(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save(example(1))
        with pytest.raises(RefusedError):
            store.supersede(1, 1)
        store.claim()
        with pytest.raises(InvalidInputError):
            store.supersede(2, 1)
        assert open_handle().owner().superseded == ()

    def test_a_damaged_owner_is_told_and_never_a_fresh_start(
        self, open_handle: OpenHandle, blobs: Blobs
    ) -> None:
        store = open_handle()
        store.claim()
        store.save(example(1))
        store.close()
        flip(blobs, OWNER_KEY, 30)
        reader = open_handle()
        for call in (
            reader.recover_latest_validated,
            reader.load_latest,
            reader.list,
            reader.claim,
        ):
            with pytest.raises(DamageError):
                call()

    def test_an_owner_that_vanishes_is_noticed_by_its_writer(
        self, open_handle: OpenHandle, blobs: Blobs
    ) -> None:
        store = open_handle()
        store.claim()
        blobs.delete([OWNER_KEY])
        with pytest.raises(DamageError):
            store.save(example(1))

    def test_a_format_that_is_too_new_is_refused(
        self, open_handle: OpenHandle, blobs: Blobs
    ) -> None:
        store = open_handle()
        store.claim()
        store.save(example(1))
        newer = msgspec.structs.replace(store.owner(), format_version=2)
        overwrite(blobs, OWNER_KEY, encode_owner(newer))
        reader = open_handle()
        for call in (reader.recover_latest_validated, reader.load_latest, reader.claim):
            with pytest.raises(FormatTooNewError):
                call()
