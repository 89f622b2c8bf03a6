"""A store on S3, Google Cloud Storage or Azure Blob Storage, through obstore.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PreconditionError,
    UnknownConfigurationKeyError,
)

from seamark._redaction import Redactor
from seamark.blobs.addresses import address_of
from seamark.blobs.contract import (
    PROBE_PREFIX,
    Blob,
    Blobs,
    Buffer,
    Entry,
    KeyExists,
    Stream,
    Tag,
    TagMismatch,
    check_folder,
    check_key,
    check_range,
    is_key,
)
from seamark.blobs.object_errors import plain_message, translated_errors, was_removed
from seamark.errors import (
    DamageError,
    InvalidInputError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import ObjectStore

_PART: Final = 8 << 20
_PARTS_AT_A_TIME: Final = 4  # 32 MiB in memory
_DELETES: Final = 1000
_MOST_COPIED: Final = 1 << 30
"""Bytes that a service is asked to copy in one request. S3 takes 5 GB, if one waits for it."""
_RETRIES: Final = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}


class ObjectBlobs(Blobs):
    """Objects below a prefix. Conditions are the store's own (``If-None-Match``, ``If-Match``)."""

    max_put = 32 << 20
    needs_probe = True
    parallel_reads = 16

    def __init__(
        self,
        store: ObjectStore,
        url: str,
        *,
        redact: Redactor | None = None,
        conditional: bool = True,
    ) -> None:
        self.url = url
        self._store = store
        self._redact = redact or Redactor({})
        self._conditional = conditional
        self._opened_by: tuple[str, dict[str, Any]] | None = None
        self._whole_bucket: ObjectStore | None = None

    @property
    def client(self) -> ObjectStore:
        """The client, for what only one kind of object store can do."""
        return self._store

    @property
    def address(self) -> tuple[str, ...]:
        config: Mapping[str, Any] = getattr(self._store, "config", None) or {}
        prefix = str(getattr(self._store, "prefix", None) or "")
        return address_of(type(self._store).__name__, config, prefix)

    @classmethod
    def open(cls, url: str, options: Mapping[str, Any], *, conditional: bool) -> ObjectBlobs:
        """Open by URL, with options as obstore takes them and credentials of the environment."""
        redact = Redactor(options)
        shown = redact(url)
        settings = {"retry_config": _RETRIES, **_client_options(options)}
        try:
            store = obstore.store.from_url(url, **settings)
        except UnknownConfigurationKeyError as error:
            raise InvalidInputError(
                f"a storage option is not known: {plain_message(error, redact)}",
                where=shown,
                hint="Options are those of obstore's S3Store, GCSStore and AzureStore.",
            ) from None
        except (BaseError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"cannot open the store: {plain_message(error, redact)}", where=shown
            ) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # obstore aborts a call this way on some values of the wrong kind
            raise InvalidInputError(
                "cannot open the store: a storage option has a value of the wrong kind",
                where=shown,
                hint=f"Options given: {', '.join(sorted(options))}.",
            ) from None
        opened = cls(store, shown, redact=redact, conditional=conditional)
        opened._opened_by = url, dict(options)
        return opened

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens it by the same URL and options, with credentials of its own."""
        if self._opened_by is None:
            raise TypeError("a store that was not opened by its URL cannot be sent elsewhere")
        return _reopen, (*self._opened_by, self._conditional)

    # reading

    def read(self, key: str, limit: int) -> Blob | None:
        try:
            with self._translated_errors("reading", key):
                result = obstore.get(self._store, check_key(key))
                size = result.meta["size"]
                if size > limit:
                    raise DamageError(f"{key} has {size} bytes, more than {limit}", where=self.url)
                return Blob(b"".join(self._pieces(key, result)), _tag_of(result.meta))
        except FileNotFoundError:
            return None
        except StoreUnavailableError as error:
            if was_removed(error):
                return None
            raise

    def stat(self, key: str) -> Entry | None:
        try:
            with self._translated_errors("looking at", key):
                return _entry(obstore.head(self._store, check_key(key)))
        except FileNotFoundError:
            return None

    def stream(self, key: str, piece: int) -> Stream | None:
        try:
            with self._translated_errors("reading", key):
                result = obstore.get(self._store, check_key(key))
                return Stream(self._pieces(key, result, piece), _version(result.meta["e_tag"]))
        except FileNotFoundError:
            return None

    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        check_range(key, offset, length)
        if length == 0:
            return b"" if self.stat(key) is not None else None
        try:
            with self._translated_errors("reading", key):
                within: GetOptions = {"range": (offset, offset + length)}
                result = obstore.get(self._store, check_key(key), options=within)
                return b"".join(self._pieces(key, result))
        except FileNotFoundError:
            return None
        except StoreUnavailableError as error:
            if was_removed(error):
                return None
            # a range that starts after the end is refused; that says something about the value
            entry = self.stat(key)
            if entry is not None and entry.size <= offset:
                return b""
            raise

    def _pieces(self, key: str, result: GetResult, piece: int = _PART) -> Iterator[Buffer]:
        with self._translated_errors("reading", key):
            chunks, (sent, end) = result.stream(min_chunk_size=piece), result.range
            while (chunk := next(chunks, None)) is not None:
                if (sent := sent + len(chunk)) > end:  # more than the server has said
                    raise StoreUnavailableError(f"reading {key}: too much came", where=self.url)
                yield memoryview(chunk)

    def entries(self, prefix: str) -> list[Entry]:
        below, found = check_folder(prefix).rstrip("/") or None, dict[str, Entry]()
        with self._translated_errors("listing", prefix):
            for page in obstore.list(self._store, prefix=below, chunk_size=1000):
                if page and not {meta["path"] for meta in page}.difference(found):
                    raise StoreUnavailableError(f"listing {prefix} never ends", where=self.url)
                found |= {meta["path"]: _entry(meta) for meta in page}
        return sorted(e for k, e in found.items() if k.startswith(prefix) and is_key(k))

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        tails = (entry.key.removeprefix(prefix).split("/") for entry in self.entries(prefix))
        return [tail[0] for tail in tails if len(tail) == 2 and tail[1] == name]

    # writing

    def create(self, key: str, data: bytes) -> Tag:
        if not self._conditional and self.stat(key) is not None:
            raise KeyExists(key)
        try:
            return self._put(key, data, "create" if self._conditional else "overwrite")
        except AlreadyExistsError:
            raise KeyExists(key) from None
        except FileNotFoundError as error:
            raise StoreUnavailableError(
                f"writing {key} failed: {plain_message(error, self._redact)}", where=self.url
            ) from None

    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag | None:
        # pieces are taken here and pushed: a producer that itself reads from an object store
        # cannot be called from inside of obstore
        with self._translated_errors("writing", key, write=True):
            writer = obstore.open_writer(
                self._store, check_key(key), buffer_size=_PART, max_concurrency=_PARTS_AT_A_TIME
            )
        for piece in pieces:
            with self._translated_errors("writing", key, write=True):
                writer.write(bytes(piece))  # sent later, when the producer may reuse its buffer
        with self._translated_errors("writing", key, write=True):
            writer.close()  # only now it appears; a writer that is not closed leaves nothing
        return None

    def take_from(self, other: Blobs, key: str, size: int) -> bool:
        bucket = self._bucket() if _are_one_bucket(self, other) else None
        if bucket is None or size > _MOST_COPIED:
            return False
        here, there = ("/".join([*each.address[3:], check_key(key)]) for each in (self, other))
        try:
            with self._translated_errors("copying", key, write=True):
                obstore.copy(bucket, there, here)
        except (FileNotFoundError, RefusedError):
            return False
        except StoreUnavailableError as error:
            if isinstance(error, OutcomeUnknownError):
                raise
            return False  # these credentials may not read there, and the others may
        return True

    def _bucket(self) -> ObjectStore | None:
        """The bucket as a whole, in which a copy is one request; None when its URL is not known."""
        if self._whole_bucket is None and self._opened_by is not None:
            url, options = self._opened_by
            parts = urlsplit(url)
            settings = {"retry_config": _RETRIES, **_client_options(options)}
            root = f"{parts.scheme}://{parts.netloc}"
            self._whole_bucket = obstore.store.from_url(root, **settings)
        return self._whole_bucket

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        if not self._conditional:
            current = self.read(key, 1 << 32)
            if current is None or current.tag != tag:
                raise TagMismatch(key)
            return self._put(key, data, "overwrite")
        try:
            return self._put(key, data, _condition(tag))
        except (PreconditionError, FileNotFoundError):
            raise TagMismatch(key) from None

    def delete(self, keys: Sequence[str]) -> None:
        checked = [check_key(key) for key in keys]
        for start in range(0, len(checked), _DELETES):
            batch = checked[start : start + _DELETES]
            try:
                with self._translated_errors("removing", batch[0]):
                    obstore.delete(self._store, batch)
            except FileNotFoundError:
                # Azure minds a missing one and may have stopped there
                for key in batch:
                    with suppress(FileNotFoundError), self._translated_errors("removing", key):
                        obstore.delete(self._store, key)

    def clock(self) -> float:
        key = f"{PROBE_PREFIX}{os.urandom(16).hex()}"
        self._put(key, b"", "overwrite")
        entry = self.stat(key)
        self.delete([key])
        return time.time() if entry is None else entry.modified

    def _put(self, key: str, data: bytes, mode: PutMode | Literal["overwrite"]) -> Tag:
        with self._translated_errors("writing", key, write=True):
            return _tag_of(
                obstore.put(self._store, check_key(key), data, mode=mode, use_multipart=False)
            )

    def version_of(self, tag: Tag) -> Hashable:
        return _version(tag[0]) if isinstance(tag, tuple) else None

    def _translated_errors(
        self, doing: str, key: str, *, write: bool = False
    ) -> AbstractContextManager[None]:
        return translated_errors(doing, key, self.url, self._redact, write=write)


def _are_one_bucket(one: Blobs, other: Blobs) -> bool:
    """Whether two places are in one bucket of one service, as far as can be known."""
    here, there = one.address[:3], other.address[:3]
    return isinstance(other, ObjectBlobs) and len(here) == 3 and here == there


def _client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`allow_http` is an option of the client, but everybody writes it next to the others."""
    given = dict(options)
    if "allow_http" in given:
        allow = str(given.pop("allow_http")).lower() in ("true", "1", "yes")
        given["client_options"] = {"allow_http": allow, **(given.get("client_options") or {})}
    return given


def _condition(tag: Tag) -> PutMode:
    e_tag, version = tag if isinstance(tag, tuple) else (None, None)
    condition: UpdateVersion = {}
    if e_tag is not None:
        condition["e_tag"] = e_tag
    if version is not None:
        condition["version"] = version
    return condition


def _version(e_tag: str | None) -> str | None:
    # Azure quotes its tags in some answers and not in others
    return e_tag.strip('"') if e_tag else None


def _tag_of(meta: ObjectMeta | PutResult) -> Tag:
    return (meta.get("e_tag"), meta.get("version"))


def _entry(meta: ObjectMeta) -> Entry:
    return Entry(
        meta["path"], meta["size"], meta["last_modified"].timestamp(), _version(meta["e_tag"])
    )


def _reopen(url: str, options: Mapping[str, Any], conditional: bool) -> ObjectBlobs:
    return ObjectBlobs.open(url, options, conditional=conditional)
