"""Suites that a backend, a sink or a progress store must pass; subclass them in your own tests.

::

    class TestMyBlobs(BlobsConformance):
        @pytest.fixture
        def blobs(self) -> Blobs:
            return MyBlobs(new_empty_place())

    class TestMySink(SinkSuite):
        @pytest.fixture
        def open_sink(self, tmp_path: Path) -> OpenSink:
            return lambda: MySink(tmp_path)

        @pytest.fixture
        def visible(self, tmp_path: Path) -> ReadRows:
            return lambda: [row.n for row in read_my_target(tmp_path)]

    class TestMyProgress(ProgressSuite):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return lambda read_only=False: SourceCheckpointStore(
                MyLedger(tmp_path), read_only=read_only
            )

Every test is one rule, and its name states the rule. Needs pytest.
"""

import pkgutil

import pytest

# before the modules with the assertions are imported, so that a failure shows the values
pytest.register_assert_rewrite(
    *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
)

from seamark.testing.conformance.blob_suite import BlobsConformance  # noqa: E402
from seamark.testing.conformance.progress_examples import OpenStore  # noqa: E402
from seamark.testing.conformance.progress_suite import ProgressSuite  # noqa: E402
from seamark.testing.conformance.sink_examples import MakeFrame, OpenSink, ReadRows  # noqa: E402
from seamark.testing.conformance.sink_suite import SinkSuite  # noqa: E402

__all__ = [
    "BlobsConformance",
    "MakeFrame",
    "OpenSink",
    "OpenStore",
    "ProgressSuite",
    "ReadRows",
    "SinkSuite",
]
