"""Who may write to a store, and what it must keep: claims, timelines and pins.

Tests: ``tests/store/test_ownership.py``.
"""

from __future__ import annotations

import time
from datetime import timedelta

from seamark._common.checks import check_duration, check_id, check_name
from seamark.errors import InvalidInputError
from seamark.store import owner_rebuild
from seamark.store.owner import Owner, Pin, with_pins, without_pin
from seamark.store.ownership import Claim
from seamark.store.reader import StoreReader
from seamark.store.validation import CheckpointKind


class OwnedStore(StoreReader):
    """What changes ``owner.json``: who writes, which ids count, which checkpoints stay."""

    def claim(
        self, *, writer: str | None = None, pipeline: str | None = None, take_over: bool = True
    ) -> Claim:
        """Become the only writer. Any other one gets :class:`FencedError` from here on.

        Unless ``take_over``, this one gets it when there is another that may be alive.
        """
        with self._lock:
            return self._reading().claim(writer, pipeline, take_over=take_over)

    def release(self) -> None:
        """Give back the claim, if there is one. The handle stays open and can claim again."""
        with self._lock:
            self._reading().release()

    def check_claim(self) -> None:
        """Ask the store whether this handle may still write; :class:`FencedError` when not."""
        self._reading().require_writable()

    def supersede(self, first_id: int, last_id: int) -> Claim:
        """Take a range of ids out of use for good and start a new timeline. Needs a claim."""
        if check_id(first_id) > check_id(last_id):
            raise InvalidInputError(f"the range {first_id} to {last_id} is empty")
        with self._lock:
            if last_id >= self.next_id():
                raise InvalidInputError(
                    f"checkpoint {last_id} does not exist yet, so it cannot be superseded"
                )
            return self._ownership.begin_timeline((first_id, last_id))

    def begin_timeline(self) -> Claim:
        """Start a new timeline and give nothing up. Needs a claim."""
        with self._lock:
            return self._reading().begin_timeline()

    def rebuild_owner(self) -> Owner:
        """Replace a damaged, lost or outdated ``owner.json`` by what the manifests say.

        Pins that it does not name are lost. A writer that is still alive is fenced.
        :class:`RefusedError` when it is whole.
        """
        with self._lock:
            self._reading()
            return owner_rebuild.rebuild_owner(self._parts).owner

    def pin(
        self, name: str, checkpoint_id: int, *, expires_in: float | timedelta | None = None
    ) -> Pin:
        """Keep a checkpoint and all it needs, under a name, until unpinned or expired."""
        check_name(name, "pin")
        owner = self._reading().read()
        examined = self._validator.examine(check_id(checkpoint_id), owner, read_state="never")
        if examined.kind not in (CheckpointKind.CHECKPOINT, CheckpointKind.DAMAGED):
            raise self._not_found(checkpoint_id)
        now_ms = time.time_ns() // 1_000_000
        expires_at = None
        if expires_in is not None:
            expires_at = now_ms + int(
                check_duration("the time until a pin expires", expires_in) * 1000
            )
        pin = Pin(checkpoint_id, now_ms, expires_at)
        with self._lock:
            self._ownership.probe()
            self._ownership.amend(lambda now: with_pins(now, {name: pin}))
        return pin

    def unpin(self, name: str) -> None:
        """Remove a pin; :class:`CheckpointNotFoundError` when there is none of that name."""
        with self._lock:
            self._reading().amend(lambda now: without_pin(now, name))
