"""Saving a manifest, which is the decision, while the store may not answer."""

from __future__ import annotations

from seamark._common.retry import Backoff
from seamark.errors import FencedError, OutcomeUnknownError, SeamarkError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.manifest_changes import unknown_save


def save_with_retry(
    store: CheckpointStore, manifest: CheckpointManifest, chunks: list[bytes], patience: float
) -> CheckpointManifest:
    """Save a checkpoint, trying again for ``patience`` seconds; the manifest as stored.

    :class:`OutcomeUnknownError` when it stays unknown whether the epoch was decided: then nothing
    may be undone. Any other error means that it was not. An exception that is not ours says nothing
    about the outcome.
    """
    backoff = Backoff(patience)
    unknown = False
    while True:
        try:
            return store.save_with_state(manifest, chunks or None)
        except OutcomeUnknownError as error:
            unknown = True
            saved = _read_back(store, manifest, backoff)
            if saved is not None:
                return saved
            _wait(backoff, error, unknown)
        except StoreUnavailableError as error:
            _wait(backoff, error, unknown)
        except Exception as error:
            if isinstance(error, SeamarkError) and not unknown:
                raise
            # an earlier try may have arrived, whatever this one says
            raise unknown_save(manifest.checkpoint_id, error) from error


def fencing_behind(error: BaseException, store: CheckpointStore) -> BaseException:
    """``error``, or the :class:`FencedError` behind it.

    A writer that takes over moves the working copy, which looks like another failure.
    """
    if isinstance(error, Exception) and not isinstance(error, FencedError | OutcomeUnknownError):
        try:
            store.check_claim()
        except FencedError as fenced:
            fenced.__cause__ = error
            return fenced
        except SeamarkError:
            pass  # the store does not answer, so the error itself is reported
    return error


def _read_back(
    store: CheckpointStore, manifest: CheckpointManifest, backoff: Backoff
) -> CheckpointManifest | None:
    """The manifest of this very attempt, if it is there; None when it is not."""
    while True:
        try:
            stored = store.load_by_id(manifest.checkpoint_id)
        except StoreUnavailableError as error:
            _wait(backoff, error, True)
            continue
        except Exception as error:  # what cannot be read may be ours
            raise unknown_save(manifest.checkpoint_id, error) from error
        ours = stored is not None and stored.attempt == manifest.attempt
        return stored if ours else None


def _wait(backoff: Backoff, error: Exception, unknown: bool) -> None:
    try:
        backoff.wait(error, "saving the checkpoint")
    except StoreUnavailableError as last:
        if not unknown:
            raise
        raise OutcomeUnknownError(
            "the store stopped answering while a checkpoint was being saved",
            where=str(last),
            hint="Nothing was undone. Start again when the store answers: that finds out.",
        ) from last
