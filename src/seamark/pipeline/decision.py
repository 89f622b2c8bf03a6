"""Saving a manifest, which is the decision, in the face of a store that does not answer."""

from __future__ import annotations

from seamark.errors import FencedError, OutcomeUnknownError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.patience import Pauses
from seamark.store import CheckpointStore


def decide(
    store: CheckpointStore, manifest: CheckpointManifest, chunks: list[bytes], patience: float
) -> CheckpointManifest:
    """Save a checkpoint, trying again for ``patience`` seconds; the manifest as stored.

    :class:`OutcomeUnknownError` when it stays unknown whether the epoch was decided: then nothing
    may be undone. Any other error means that it was not.
    """
    pauses = Pauses(patience)
    unknown: Exception | None = None
    while True:
        try:
            return store.save_with_state(manifest, chunks or None)
        except OutcomeUnknownError as error:
            unknown = error
            found = _read_back(store, manifest, pauses)
            if found is not None:
                return found
        except StoreUnavailableError as error:
            if unknown is not None:
                unknown = error
            _wait(pauses, error, unknown)
        except FencedError as error:
            if unknown is None:
                raise
            # an earlier try may have arrived before the other writer did
            raise _still_unknown(manifest, error) from error


def _read_back(
    store: CheckpointStore, manifest: CheckpointManifest, pauses: Pauses
) -> CheckpointManifest | None:
    """The manifest of this very attempt, if it is there; None when it is not."""
    while True:
        try:
            found = store.load_by_id(manifest.checkpoint_id)
        except StoreUnavailableError as error:
            _wait(pauses, error, error)
            continue
        ours = found is not None and found.extra.get("attempt") == manifest.extra.get("attempt")
        return found if ours else None


def _wait(pauses: Pauses, error: Exception, unknown: Exception | None) -> None:
    if unknown is None:
        pauses.wait(error, "saving the checkpoint")
        return
    try:
        pauses.wait(error, "saving the checkpoint")
    except StoreUnavailableError as last:
        raise OutcomeUnknownError(
            "the store stopped answering while a checkpoint was being saved",
            where=str(last),
            hint="Nothing was undone. Start again when the store answers: that finds out.",
        ) from last


def _still_unknown(manifest: CheckpointManifest, error: Exception) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"whether checkpoint {manifest.checkpoint_id} was saved is not known",
        where=str(error),
        hint="Nothing was undone. The next start finds out.",
    )
