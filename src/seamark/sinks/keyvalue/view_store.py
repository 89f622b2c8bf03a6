"""The store that holds a live view: RocksDB or Redis, opened when it is first needed.

Tests: ``tests/sinks/test_view_beside_a_writer.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from seamark._common.os_errors import translate_os_errors
from seamark.errors import (
    DamageError,
    InvalidInputError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.progress.ledger import SessionOvertaken
from seamark.progress.redis.client import check_url, shown_url
from seamark.progress.rocksdb.database import refuse_foreign_files
from seamark.progress.session import Session
from seamark.progress.store import SourceCheckpointStore
from seamark.progress.urls import open_ledger, rocksdb_path
from seamark.sinks.folders import is_there

T = TypeVar("T")
_TRIES: Final = 20


def is_redis(url: str) -> bool:
    """Whether the view is in Redis, and not in RocksDB.

    :class:`InvalidInputError` for any other URL. Otherwise an unquoted password
    would show up as part of the path.
    """
    scheme = url.partition(":")[0].lower()
    if scheme in ("redis", "rediss"):
        check_url(url)
        return True
    if scheme != "rocksdb":
        raise InvalidInputError(
            "a KeyValueSink writes to rocksdb:///abs/path or redis://host:port/db",
            hint="For a try-out in memory there is MemorySink.",
        )
    if not url.lower().startswith("rocksdb:///") or "#" in url or "?" in url:
        raise InvalidInputError(
            "a RocksDB URL looks like rocksdb:///abs/path, with nothing behind it",
            hint="seamark.progress.rocksdb_url(path) makes one of any path.",
        )
    return False


@contextmanager
def _of_one_moment(session: Session) -> Iterator[None]:
    """Retry, rather than refuse, when another commit came between two reads."""
    try:
        yield
    except (RefusedError, DamageError):
        if session.transaction.is_current():
            raise
        raise SessionOvertaken(f"another session of {session.store.url} came in between") from None


class ViewStore:
    """The store that holds a view, opened when it is first needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: SourceCheckpointStore | None = None
        self.namespace = ""
        """Of a view in Redis whose URL names none."""

    @property
    def is_redis(self) -> bool:
        """Whether it is in Redis, and not in RocksDB."""
        return is_redis(self._url)

    @property
    def shown(self) -> str:
        """Where the view is, without secrets."""
        if not self.is_redis:
            return self._url
        namespace = self._given_namespace()
        return shown_url(self._url) + (f"?namespace={namespace}" if namespace else "")

    def _given_namespace(self) -> str | None:
        namespaces = parse_qs(urlsplit(self._url).query).get("namespace")
        return namespaces[0] if namespaces else None

    @property
    def used_namespace(self) -> str:
        """The namespace of a view in Redis."""
        return self._given_namespace() or self.namespace

    @property
    def store(self) -> SourceCheckpointStore:
        """The store, opened. Writers of one view do not fence each other: its ledger decides."""
        if self._opened is None:
            ledger = open_ledger(self._url, namespace=self.used_namespace or None, claim=False)
            self._opened = SourceCheckpointStore(ledger)
            if self.is_redis:
                from seamark.progress.redis.ledger import warn_of_losses

                warn_of_losses(ledger)
        return self._opened

    @property
    def found(self) -> SourceCheckpointStore | None:
        """The store, opened; None when it is in RocksDB and was never made."""
        if self._opened is not None or self.is_redis:
            return self.store
        folder = rocksdb_path(self._url)
        if is_there(folder):
            with translate_os_errors("listing", folder):
                refuse_foreign_files(folder)
        return self.store if is_there(f"{folder}/CURRENT") else None

    def close(self) -> None:
        """Let go of the store; it is opened again when it is needed."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def in_session(self, work: Callable[[Session], T]) -> T:
        """Do something in one session, and again when another process came in between."""
        for _ in range(_TRIES):
            try:
                with self.store.session() as session, _of_one_moment(session):
                    return work(session)
            except SessionOvertaken:
                continue
            except OutcomeUnknownError:
                self.close()  # the record of epochs decides after it is opened again
                raise
        raise StoreUnavailableError(
            "several programs write to this view at once, and this one never gets a turn",
            where=self.shown,
            hint="Stop all but one.",
        )
