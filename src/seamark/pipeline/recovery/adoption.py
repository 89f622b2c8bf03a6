"""Going on from the checkpoint directory of a query that was not a pipeline.

Tests: ``tests/pipeline/test_changed_pipelines.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from seamark.capture.batches import BatchAt, batch_at
from seamark.capture.declared_inputs import has_read_elsewhere
from seamark.capture.plans import install_plan, own_lines
from seamark.capture.restore import restore_files
from seamark.capture.unread_entries import forget_unread
from seamark.checkpoint_dir.files import newest_source_entry
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import RefusedError
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.spark.batch_log import log_text, require_unnamed
from seamark.spark.plans.lossy_options import may_lose_of


@dataclass(frozen=True)
class AdoptedQuery:
    """Where the adopted query stood."""

    next_batch: int
    text: str


def adopt_checkpoint(
    old: WorkingCopy, mine: WorkingCopy, identity: PipelineIdentity
) -> AdoptedQuery:
    """Bring this pipeline's first working copy to the last batch of an existing directory.

    :class:`RefusedError` says why when it does not fit. The directory itself is not changed.
    """
    with refusing_what_is_gone(old):
        taken = fitting_batch(old, identity)
        restore_files(mine, taken.logs, taken.files, taken.state_paths)
    forget_unread(mine, taken.batch, identity.inputs)
    if taken.plan is not None:
        install_plan(mine, taken.batch + 1, taken.plan, identity.inputs)
    text = f"adopted from {old.root} after batch {taken.batch}"
    return AdoptedQuery(taken.batch + 1, text)


def begun_batches(old: WorkingCopy) -> list[int]:
    """Batches that the query has planned and not committed: its sink may have their rows."""
    last = last_committed(old)
    return [batch for batch in old.batches("offsets") if batch > last]


@contextmanager
def refusing_what_is_gone(old: WorkingCopy) -> Iterator[None]:
    """:class:`RefusedError` when a file of the directory is not there, or not any more."""
    try:
        yield
    except MissingVersion as error:
        raise _refused(old, error.what) from None
    except FileNotFoundError as error:
        raise _refused(old, f"{error.filename} is gone; is its query running?") from None


def fitting_batch(old: WorkingCopy, identity: PipelineIdentity) -> BatchAt:
    """The last batch of a directory; :class:`RefusedError` when it is not of such a pipeline."""
    taken = batch_at(old, last_committed(old))
    _require_fitting(old, taken, identity)
    return taken


def last_committed(old: WorkingCopy) -> int:
    """The last batch that the query has finished; :class:`RefusedError` when there is none."""
    commits = old.batches("commits")
    if commits and old.read_text("metadata") is not None:
        return commits[-1]
    if old.batches("offsets"):
        raise _refused(
            old,
            "its query has begun a batch and committed none",
            hint=" But then a sink that has rows of that batch gets them again: start the query "
            "once with trigger(availableNow=True), so that it finishes the batch, and adopt it.",
        )
    raise _refused(old, "no query that has committed a batch has its checkpoint there")


def _require_fitting(old: WorkingCopy, taken: BatchAt, identity: PipelineIdentity) -> None:
    entry = require_unnamed(taken.entry)
    if len(entry.lines) != len(identity.leaves):
        raise _refused(
            old,
            f"its query has {len(entry.lines)} sources, and this pipeline reads "
            f"{len(identity.leaves)} (each output counts its own)",
            hint=_ONE_OF_SEVERAL,
        )
    if (name := _read_elsewhere(taken, entry.lines, identity)) is not None:
        raise _refused(
            old,
            f"source {name!r} would go on where the query has read something else: nothing that it "
            "has read there last is what the source is declared to read",
            hint=_IN_ORDER,
        )
    partitions = identity.structure["state_partitions"]
    if partitions and entry.state_partitions != partitions:
        raise _refused(
            old,
            f"its state has {entry.state_partitions} partitions, and this session would make "
            f"{partitions}: set spark.sql.shuffle.partitions to {entry.state_partitions}",
        )
    has_state = bool(old.operators())
    if has_state != bool(identity.structure["operators"]):
        what = f"its query has {'' if has_state else 'no '}stateful operators"
        raise _refused(old, what, hint=_ONE_OF_SEVERAL)


def _read_elsewhere(taken: BatchAt, lines: Sequence[str], identity: PipelineIdentity) -> str | None:
    """A source that comes to the place of another one in Spark's logs, which name none."""
    sources = identity.structure.get("sources") or {}
    for number, declared in enumerate(identity.inputs):
        if declared is None or "fileNameOnly" in may_lose_of(sources.get(declared.source)):
            continue  # files that are known by their names alone may have moved
        path = _newest_entry(taken, number)
        entry = None if path is None else own_lines(path, log_text(path, taken.logs[path]))
        if has_read_elsewhere(declared, lines, path or "", entry):
            return declared.source
    return None


def _newest_entry(taken: BatchAt, folder: int) -> str | None:
    """The path of the newest entry of a source's own log, up to the batch."""
    log = f"sources/{folder}/"
    newest = newest_source_entry(
        path.removeprefix(log) for path in taken.logs if path.startswith(log)
    )
    return None if newest is None else log + newest


_IN_ORDER: Final = (
    " Spark knows sources by their order alone: declare the outputs so that they read the sources "
    "in the order of the query, each from where the query has read last."
)
_ONE_OF_SEVERAL: Final = (
    " If the query has become one of several outputs, adopt_as= names that one, with "
    "policy='evolve'."
)


def _refused(old: WorkingCopy, why: str, *, hint: str = "") -> RefusedError:
    return RefusedError(
        f"{old.root} cannot be adopted: {why}",
        hint=f"It was not changed. Without adopt= the pipeline starts over.{hint}",
    )
