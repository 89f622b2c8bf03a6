"""All that a state store promises, put together from its chapters."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.blobs.contract import Blobs
from seamark.blobs.memory import MemoryBlobs
from seamark.state import StateStore
from tests.state.support.conformance.chains import StateChains
from tests.state.support.conformance.copies import StateCopies, StatePointer
from tests.state.support.conformance.damage import StateDamage
from tests.state.support.conformance.tasks import StateTasks
from tests.state.support.conformance.upkeep import StateUpkeep
from tests.state.support.conformance.writing import StateWriting
from tests.state.support.examples import OpenState


class StateConformance(
    StateWriting,
    StateTasks,
    StateChains,
    StateUpkeep,
    StateDamage,
    StateCopies,
    StatePointer,
):
    """What a state store promises, one test per promise, on a backend of your choice.

    A subclass gives the fixture ``blobs``: the backend under the store, fresh and empty; bytes are
    harmed through it. ``other_blobs`` is where copies go, in memory unless overridden.
    ``open_state`` opens the store once more each time it is called.
    """

    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError("override this fixture with a fresh, empty backend")

    @pytest.fixture
    def other_blobs(self) -> Blobs:
        return MemoryBlobs()

    @pytest.fixture
    def open_state(self, blobs: Blobs) -> OpenState:
        def opened(**options: Any) -> StateStore:
            return StateStore(blobs, **options)

        return opened
