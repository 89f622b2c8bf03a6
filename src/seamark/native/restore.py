"""From a checkpoint of a store to a directory from which stock Spark continues."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from seamark._common.files import sync_above, sync_tree
from seamark._common.os_errors import translate_os_errors
from seamark._common.parallel import map_in_threads
from seamark.capture.checkpoint_contents import Chain, needed_files
from seamark.capture.gap_lines import apply_gaps
from seamark.capture.movers import Contents
from seamark.capture.plans import install_plan
from seamark.capture.restore import FetchAll, RestoredFiles, restore, restore_index
from seamark.capture.unread_entries import forget_undeclared
from seamark.checkpoint_dir.file_logs.source_log import moved
from seamark.checkpoint_dir.places.directory import Directory
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.checkpoint_dir.state_references import require_state_inside
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.native.new_checkpoint import planned
from seamark.spark.pinned_settings import require_named_classes
from seamark.store import CheckpointStore
from seamark.store.inspection import pruned_or

Advance = Callable[[int], None]


@dataclass(frozen=True)
class RestoreOptions:
    """How the restored directory is to differ from the one that was stored."""

    new_query_id: bool = False
    """Sinks that remember batches by query id take them for new ones."""
    moved_inputs: Mapping[str, str] = field(default_factory=dict)
    """Old → new beginning of the paths that file sources have noted."""
    without_plan: bool = False
    """Leave out the batch that was planned, so that Spark plans it again."""
    own_classes: Collection[str] | None = ()
    """Classes in the offset log that may be others than Spark's; None for one who asks for them
    before Spark reads the directory."""


@dataclass(frozen=True, kw_only=True)
class RestoredDirectory:
    """What was written."""

    checkpoint_id: int
    batch: int
    files: int
    size: int
    replays: int | None
    """The batch that runs again on the rows that it was planned for."""


def restore_directory(
    store: CheckpointStore,
    checkpoint_id: int,
    target: Directory,
    wishes: RestoreOptions | None = None,
    advance: Advance | None = None,
    before_shown: Callable[[], None] | None = None,
) -> RestoredDirectory:
    """Write a directory as it was after the checkpoint's batch; it must be empty or not there.

    Every file is verified by its SHA-256 on the way. On a local disk the directory appears whole
    or not at all; elsewhere the files come in an order in which Spark refuses a part of them.
    ``before_shown`` is called when all of it is whole and verified, and nobody can see it yet.
    """
    manifest = store.load_by_id(checkpoint_id)
    if manifest is None:
        raise CheckpointNotFoundError(f"there is no checkpoint {checkpoint_id}", where=store.url)
    require_empty(target)
    near = os.path.dirname(target.url) if isinstance(target, LocalDirectory) else None
    with translate_os_errors("making a folder in", near or tempfile.gettempdir()):
        if near:
            os.makedirs(near, exist_ok=True)
        scratch = tempfile.mkdtemp(prefix=".seamark-restore-", dir=near)
    try:
        copy = LocalCopy(f"{scratch}/directory", uri=target.uri)
        written = restore_checkpoint(store, manifest, copy, advance)
        require_state_inside(copy)
        wishes = wishes or RestoreOptions()
        replays = _adapted(copy, manifest, wishes)
        if wishes.own_classes is not None:
            require_named_classes(copy, copy.batches("offsets"), wishes.own_classes)
        if before_shown is not None:
            before_shown()
        if near is not None:
            _show(copy, target.url)
        else:
            _upload(copy, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return RestoredDirectory(
        checkpoint_id=checkpoint_id,
        batch=manifest.batch,
        files=written.files,
        size=written.size,
        replays=replays,
    )


def require_empty(target: Directory) -> None:
    """:class:`RefusedError` when there is anything in a directory."""
    try:
        files = target.listing()
    except CheckpointNotFoundError:
        return
    if files:
        raise RefusedError(
            "the directory to restore into is not empty",
            where=f"{target.url} has {len(files)} files, {min(files)} among them",
            hint="Leftovers of another history make Spark give wrong results without an error. "
            "Choose another place.",
        )


def restore_checkpoint(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    copy: WorkingCopy,
    advance: Advance | None = None,
    fetch_all: FetchAll | None = None,
) -> RestoredFiles:
    """Write what Spark had after the checkpoint's batch into a folder that is empty, verified.

    :class:`DamageError` when something is missing or wrong, :class:`CheckpointNotFoundError` when
    the checkpoint is pruned meanwhile.
    """
    chain = Chain.load(store, manifest)
    needed = needed_files(store, chain.manifests)

    def reporting(files: Iterable[Contents]) -> Iterable[Contents]:
        for contents in files:
            if advance is not None:
                advance(sum(map(len, contents.values())))
            yield contents

    if chain.index is not None:
        try:
            written = restore_index(
                copy, chain.index, chain.small, store.shared_objects, advance, fetch_all
            )
        except DamageError as error:
            raise pruned_or(store, manifest.checkpoint_id, error) from None
    else:
        written = restore(copy, reporting(chain.read(store)), chain.batch, needed)
    if copy.read_text("metadata") is None:
        raise DamageError(
            f"checkpoint {manifest.checkpoint_id} holds no directory of Spark", where=store.url
        )
    return written


def _adapted(copy: LocalCopy, manifest: CheckpointManifest, wishes: RestoreOptions) -> int | None:
    """Apply the options to the copy; returns the batch that is replayed first, or None."""
    apply_gaps(copy, manifest.gaps, manifest.leaves or (), manifest.batch)
    forget_undeclared(copy, manifest.batch)
    plan = planned(manifest)
    if wishes.without_plan and plan is not None:
        if not copy.batches("commits"):
            raise RefusedError(
                f"batch {manifest.batch} counts as done only because the next one was "
                "planned, so that plan cannot be left out",
                where=f"checkpoint {manifest.checkpoint_id}",
                hint="The directory has no commit log, as those of Spark 2.1.",
            )
        plan = None
    if plan is not None:
        install_plan(copy, manifest.batch + 1, plan)
    if wishes.moved_inputs:
        for path in copy.source_entries():
            text = copy.read_text(path) or ""
            if (there := moved(text, wishes.moved_inputs)) != text:
                copy.write(path, there.encode())
    if wishes.new_query_id:
        copy.write("metadata", new_metadata())
    return manifest.batch + 1 if plan is not None else None


def metadata_of(query_id: str) -> bytes:
    """The metadata file of a query, as Spark writes it."""
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def new_metadata() -> bytes:
    """The metadata file of a query with a new id."""
    return metadata_of(str(uuid.uuid4()))


def _show(copy: LocalCopy, target: str) -> None:
    """Put the finished directory into its place, in one step where that can be.

    A link is followed. What cannot be replaced, as a folder that a disk is mounted on, is filled.
    """
    place = os.path.realpath(target)
    with translate_os_errors("putting the directory to", target):
        sync_tree(copy.root)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        try:
            os.rename(copy.root, place)  # an empty folder is replaced
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EBUSY):
                raise
            _upload(copy, LocalDirectory(place))
        sync_above(place)


def _upload(copy: LocalCopy, target: Directory) -> None:
    """Logs before state and the metadata last: without them Spark takes a part for a new start."""
    order = ("offsets/", "commits/", "sources/", "state/")

    def rank(path: str) -> tuple[int, str]:
        if path == "metadata":
            return len(order) + 1, path
        return next((n for n, top in enumerate(order) if path.startswith(top)), len(order)), path

    def write(path: str) -> None:
        target.write(path, copy.read(path))

    paths = sorted(copy.files_below("."), key=rank)
    for is_state, group in groupby(paths, key=lambda path: path.startswith("state/")):
        map_in_threads(write, list(group), 8 if is_state else 1, "seamark-restore")
