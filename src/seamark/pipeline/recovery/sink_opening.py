"""Opening sinks, which changes nothing, and having them prepare their targets once a start may.

Tests: ``tests/pipeline/test_default_staging.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from seamark._common.files import require_no_link
from seamark._common.retry import retry_unavailable
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.declaration.target_names import target_names
from seamark.spark.session import is_local
from seamark.store import CheckpointStore
from seamark.store.inspection import newest_checkpoint

_STAGING: Final = "staging"
PATIENCE: Final = 15.0
"""Seconds for which a server that does not answer is asked again: enough for one that restarts, and
not long for somebody who has mistyped its address."""


def open_sink(output: Output, pipeline: str, store: CheckpointStore, at_target: str) -> None:
    """Open the sink of an output, as every run and every question about a rollback does.

    ``at_target`` is the name under which its target knows the output. A target that does not answer
    is asked again for some seconds.
    """
    sink = output.sink
    sink.default_staging = default_staging(store, is_local=is_local(output.df.sparkSession))
    schema = output.df.schema
    retry_unavailable(
        lambda: sink.open(pipeline, at_target, schema), PATIENCE, f"opening sink {output.name}"
    )


def prepare_targets(outputs: Iterable[Output], store: CheckpointStore) -> None:
    """Have every sink change its target as it needs it, as the last step of a start.

    :class:`FencedError` when another process has taken the store over since it was claimed.
    """
    store.check_claim()
    for output in outputs:
        what = f"preparing the target of sink {output.name}"
        retry_unavailable(output.sink.prepare_target, PATIENCE, what)


def with_target_names(declared: DeclaredPipeline, store: CheckpointStore) -> DeclaredPipeline:
    """The pipeline, with the name under which the target of each output knows it.

    See :func:`seamark.pipeline.declaration.target_names.target_names` for what it raises.
    """
    identity, renames = declared.identity, declared.settings.renames
    names = target_names(newest_checkpoint(store), identity.structure["sinks"], renames)
    return replace(declared, identity=replace(identity, target_names=names))


def default_staging(store: CheckpointStore, *, is_local: bool) -> str | None:
    """A folder in the store, if that is one of a file system and all tasks run on this machine.

    Whoever continues the pipeline has the store, and so has the folder.
    """
    if not is_local or not isinstance(store.backend, FilesystemBlobs):
        return None
    folder = f"{store.url}/{_STAGING}"
    require_no_link(folder)  # whoever made the store may have put it there
    return folder
