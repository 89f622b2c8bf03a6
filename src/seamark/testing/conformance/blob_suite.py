"""The whole contract of a backend, put together from its chapters."""

from __future__ import annotations

from typing import ClassVar

import pytest

from seamark.blobs.contract import Blobs
from seamark.testing.conformance.blob_conditions import BlobConditions
from seamark.testing.conformance.blob_listings import BlobListings
from seamark.testing.conformance.blob_names import BlobNames
from seamark.testing.conformance.blob_sharing import BlobSharing
from seamark.testing.conformance.blob_values import BlobValues


class BlobsConformance(BlobValues, BlobConditions, BlobListings, BlobSharing, BlobNames):
    """What :class:`seamark.store.Blobs` promises, one test per promise.

    A subclass gives the fixture ``blobs``: a backend on a fresh, empty place. Where two processes
    would open it twice, ``second_handle`` opens the same place again.
    """

    many_keys: ClassVar[int] = 1001
    """How many keys are listed and deleted at once: more than fit on a page of most stores."""

    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError("override this fixture with a fresh, empty backend")

    @pytest.fixture
    def second_handle(self, blobs: Blobs) -> Blobs:
        return blobs
