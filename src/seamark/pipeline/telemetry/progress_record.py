"""How far each source has come, in a progress store next to the checkpoints, for others to read.

The manifests decide. After a crash the record may be one epoch behind; the next start corrects it.
A record that cannot be written causes a warning, and a server that hangs causes a delay of some
seconds now and then. Neither fails an epoch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from seamark._common.files import require_no_link
from seamark._common.logs import logger_named
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import DamageError, FencedError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.progress.session import kept_position, stage_sources
from seamark.progress.store import SourceCheckpointStore
from seamark.progress.urls import open_progress, rocksdb_path, rocksdb_url
from seamark.store import CheckpointStore

log = logger_named("seamark.pipeline")

_AGAIN_AFTER: Final = 30.0
_FOLDER: Final = "progress"
_WAIT: Final = 2


def progress_url(option: str | None, store: CheckpointStore) -> str | None:
    """Where a pipeline records its progress: ``auto`` is RocksDB next to a local store.

    :class:`StoreUnavailableError` when a link is in the place of that folder.
    """
    if option != "auto":
        return option
    if not isinstance(store.backend, FilesystemBlobs) or find_spec("rocksdict") is None:
        return None
    folder = f"{os.path.realpath(store.url)}/{_FOLDER}"
    require_no_link(folder)  # whoever made the store may have put it there
    return rocksdb_url(folder)


class ProgressRecord:
    """The progress store of one run; opened when it is first needed."""

    def __init__(self, url: str | None, pipeline: str) -> None:
        self._url = url
        self._pipeline = pipeline
        self._store: SourceCheckpointStore | None = None
        self._hash: int | None = None
        self._next_try = 0.0

    def bring_to(self, newest: CheckpointManifest | None) -> str | None:
        """Make the record say what the newest checkpoint says; returns what was wrong, as text."""
        if self._url is None:
            return None
        try:
            return self._brought_to(newest)
        except DamageError as error:
            return self._start_over(newest, error)
        except InvalidInputError:
            raise  # a URL that cannot be right
        except Exception as error:  # noqa: BLE001 - no descriptors, no memory, a driver's own
            self._failed(error)
            return None

    def _brought_to(self, newest: CheckpointManifest | None) -> str | None:
        store = self._opened()
        overview = store.read_overview()
        recorded, config_hash = overview.checkpoints, overview.config_hash
        self._hash = config_hash
        if newest is None:
            if recorded or config_hash is not None:
                store.clear_checkpoints()
                self._hash = None
                return "the progress record was of another history and is cleared"
            return None
        positions = positions_in(newest)
        before = {name: (c.sequence, c.source_position) for name, c in recorded.items()}
        after = {name: (newest.epoch, kept_position(p)) for name, p in positions.items()}
        if before == after and config_hash == newest.pipeline_hash:
            return None
        with store.session() as session:
            session.forget_checkpoints()
            stage_sources(session, newest.epoch, positions)
            if newest.pipeline_hash is not None:
                session.stage_config_hash(newest.pipeline_hash)
        self._hash = newest.pipeline_hash
        return f"the progress record was brought to epoch {newest.epoch}" if recorded else None

    def note(self, epoch: int, positions: Mapping[str, bytes], config_hash: int) -> None:
        """Record an epoch that is decided. Never raises."""
        if self._url is None or (self._store is None and time.monotonic() < self._next_try):
            return
        try:
            with self._opened().session() as session:
                stage_sources(session, epoch, positions)
                if config_hash != self._hash:
                    session.stage_config_hash(config_hash)
            self._hash = config_hash
        except Exception as error:  # noqa: BLE001 - no descriptors, no memory, a driver's own
            self._failed(error)

    def _opened(self) -> SourceCheckpointStore:
        if self._store is None:
            assert self._url is not None
            url, namespace = self._url, None
            if url.startswith(("redis:", "rediss:")):
                namespace = None if "namespace=" in url else self._pipeline
                url = _impatient(url)
            self._store = open_progress(url, namespace=namespace)
        return self._store

    def _failed(self, error: Exception) -> None:
        """Go on without the record; a writer that was fenced here may still be shutting down."""
        self._hash = None  # the store that answers next time may not have it
        log.warning("the progress of the sources was not recorded: %s", error)
        self._next_try = time.monotonic() + _AGAIN_AFTER
        if isinstance(error, FencedError):
            self._next_try = time.monotonic() + _AGAIN_AFTER / 10
        self.close()

    def _start_over(self, newest: CheckpointManifest | None, error: DamageError) -> str | None:
        """Move the damaged record aside and write it again from the newest checkpoint."""
        self.close()
        url = self._url or ""
        path = rocksdb_path(url) if url.lower().startswith("rocksdb:") else ""
        if not os.path.isdir(path):
            self._failed(error)
            return None
        aside = f"{path}.damaged-{time.time_ns()}"
        try:
            os.rename(path, aside)
            self._brought_to(newest)
        except Exception as again:  # noqa: BLE001 - as above
            self._failed(again)
            return None
        return f"the progress record was damaged and is written again; the old one is in {aside}"

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            store, self._store = self._store, None
            try:
                store.close()
            except Exception as error:  # noqa: BLE001 - what is recorded is recorded
                log.warning("the progress store was not closed: %s", error)


def _impatient(url: str) -> str:
    """The URL of a server that an epoch does not wait for longer than it has to."""
    if "socket_timeout=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}socket_timeout={_WAIT}&socket_connect_timeout={_WAIT}"


def positions_in(manifest: CheckpointManifest) -> dict[str, bytes]:
    """How far each source had been read when a checkpoint was made."""
    return {
        name: "\n".join(source.metadata.values()).encode()
        for name, source in manifest.source_offsets.items()
    }
