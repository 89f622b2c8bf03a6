"""A checkpoint of a query that was not a pipeline and becomes one output of one.

What the directory of the query holds is stored as the checkpoint of a pipeline that has this output
alone. An ordinary upgrade then adds the others. The directory itself is not changed.

Tests: ``tests/pipeline/test_adopted_upgrades.py``.
"""

from __future__ import annotations

from seamark.capture.batches import BatchAt
from seamark.capture.checkpoint_contents import PlacedState, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Contents, DriverMover
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import OutcomeUnknownError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.epoch_manifest import source_offsets
from seamark.pipeline.epoch.save_with_retry import save_with_retry
from seamark.pipeline.recovery.adoption import fitting_batch, refusing_what_is_gone
from seamark.pipeline.recovery.operator_numbers import STATE_PATH, require_kinds
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG


def require_adoptable(old: WorkingCopy, identity: PipelineIdentity) -> BatchAt:
    """The last batch of a directory; :class:`RefusedError` when its query was another one.

    ``identity`` is that of a pipeline with the one output that the query has become.
    """
    with refusing_what_is_gone(old):
        taken = fitting_batch(old, identity)
        numbered = {operator.number: operator.name for operator in old.operators()}
    require_kinds(identity.structure["operators"], numbered, old.root)
    return taken


def save_adopted(
    store: CheckpointStore,
    old: WorkingCopy,
    identity: PipelineIdentity,
    settings: PipelineSettings,
) -> CheckpointManifest:
    """Store the last batch of a directory as the first checkpoint of a pipeline.

    Sinks show nothing of it: what the query has written is elsewhere.
    """
    uploads = Uploads(store.shared_objects)
    try:
        taken = require_adoptable(old, identity)
        with refusing_what_is_gone(old):
            captured, labels = _captured(old, taken, uploads)
        placed = place(captured, settings.sizes, uploads, FileIndex({}, labels))
        manifest = _manifest(store.next_id(), taken, identity, captured.versions, placed)
        return save_with_retry(store, manifest, placed.chunks, settings.store_timeout)
    except OutcomeUnknownError:
        raise
    except Exception:
        uploads.discard()
        raise


def _captured(old: WorkingCopy, taken: BatchAt, uploads: Uploads) -> tuple[Captured, list[str]]:
    operators = old.operators()
    labels = {operator.number: operator.label for operator in operators}
    files: dict[str, Contents] = {label: {} for label in labels.values()}
    files[LOG] = dict(taken.logs)
    stored: dict[str, StoredFile] = {}
    moved = DriverMover(old, uploads).take([(path,) for path in taken.state_paths])
    if lost := set(taken.state_paths).difference(file.path for file in moved):
        raise MissingVersion(f"{min(lost)} is not there", where=old.root)
    for file in moved:
        match = STATE_PATH.fullmatch(file.path)
        if file.stored is not None:
            stored[file.path] = file.stored
        elif match is not None:
            files[labels[int(match[1])]][file.path] = file.data
    most = max((operator.partitions for operator in operators), default=0)
    versions = [taken.batch + 1] * most
    captured = Captured(files=files, stored=stored, is_full=True, versions=versions)
    return captured, sorted(labels.values())


def _manifest(
    checkpoint_id: int,
    taken: BatchAt,
    identity: PipelineIdentity,
    versions: list[int],
    placed: PlacedState,
) -> CheckpointManifest:
    epoch = taken.batch + 1
    return CheckpointManifest.new(
        checkpoint_id,
        epoch=epoch,
        source_offsets=source_offsets(identity.leaves, taken.entry.lines, epoch),
        table_offsets=dict(identity.tables),
        operator_states=placed.operator_states,
        batch=taken.batch,
        state_versions=versions,
        watermark=taken.entry.watermark_ms if identity.watermarks else None,
        source_names=sorted(set(identity.leaves)),
        sink_names=list(identity.sinks),
        pipeline_hash=identity.config_hash,
        size_bytes=placed.size,
        added_bytes=placed.added_bytes or None,
        restore_bytes=placed.restore_size,
        shared_objects=[list(each) for each in placed.shared_objects] or None,
        state_partitions=max(taken.entry.state_partitions, 1),
        next_watermark=taken.next_watermark,
        structure=identity.stored_structure,
        leaves=list(identity.leaves),
        sink_guarantees=dict(identity.guarantees),
        spark_version=identity.spark_version,
        source_ids=identity.source_ids_after(None) or None,
        source_servers=dict(identity.servers) or None,
    )
