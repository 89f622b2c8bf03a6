"""Suites that a backend or a checkpoint store must pass; subclass them in your own tests.

::

    class TestMyBlobs(BlobsConformance):
        @pytest.fixture
        def blobs(self) -> Blobs:
            return MyBlobs(new_empty_place())

    class TestStoreOnMyBlobs(StoreConformance):
        @pytest.fixture
        def blobs(self) -> Blobs:
            return MyBlobs(new_empty_place())

    class TestStateOnMyBlobs(StateConformance):
        @pytest.fixture
        def blobs(self) -> Blobs:
            return MyBlobs(new_empty_place())

Every test is one rule, and its name is the rule in words. Needs pytest.
"""

import pkgutil

import pytest

# before the modules with the assertions are imported, so that a failure shows the values
pytest.register_assert_rewrite(
    *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
)

from seamark.testing.conformance.blob_suite import BlobsConformance  # noqa: E402
from seamark.testing.conformance.examples import OpenHandle  # noqa: E402
from seamark.testing.conformance.state_examples import OpenState  # noqa: E402
from seamark.testing.conformance.state_suite import StateConformance  # noqa: E402
from seamark.testing.conformance.store_suite import StoreConformance  # noqa: E402

__all__ = [
    "BlobsConformance",
    "OpenHandle",
    "OpenState",
    "StateConformance",
    "StoreConformance",
]
