"""Proof that nobody has claimed a store since its ``owner.json`` was written.

Every claim puts a tombstone above all ids that are there. So when the owner itself has decided the
newest id, there was no later claim, and there never is one that decides an id below that.

Tests: ``tests/store/test_no_later_claim.py``.
"""

from __future__ import annotations

from seamark.store.manifests import Manifests, Tombstone
from seamark.store.owner import Owner


class NoLaterClaim:
    """What was found out about the newest id of one store, so that it is not listed for each of
    very many manifests that are doubted.
    """

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._found: tuple[tuple[int, str, int | None], int] = (0, "", None), 0
        """The claim, where the pointer was, and the newest id if the claim decided it, else 0."""

    def holds_below(self, owner: Owner, checkpoint_id: int) -> bool:
        """Whether the owner decided the newest id, after this one.

        A proof holds for as long as the owner stays. Without one the store is listed again only
        when the pointer has moved since: every save moves it.
        """
        if not owner.generation:
            return False
        claim = owner.generation, owner.writer
        known_by, newest = self._found
        if known_by[:2] == claim and checkpoint_id < newest:
            return True
        found_by = (*claim, self._manifests.read_pointer())
        if known_by != found_by:
            newest = self._newest_by(*claim)
            self._found = found_by, newest
        return checkpoint_id < newest

    def _newest_by(self, generation: int, writer: str) -> int:
        newest, stored = self._manifests.newest_stored()
        if isinstance(stored, Tombstone):
            return newest if stored.generation == generation else 0
        if stored is None:
            return 0
        decided = stored.manifest
        return newest if (decided.generation, decided.writer) == (generation, writer) else 0
