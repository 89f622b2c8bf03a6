"""Uploads that a writer began on S3 and never finished.

A writer that is killed in the middle of a large object leaves the parts that it has sent. They
cost as much as stored bytes, and no listing of objects shows them. The object-store client cannot
list them either, but it signs any address, with whatever credentials it has found: so the question
is asked with a signed address.

Tests: ``tests/cli/test_doctor_space.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit, urlunsplit
from xml.etree import ElementTree

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from seamark import limits
from seamark.blobs.http_answers import get_answer
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import StoreUnavailableError

_VALID: Final = timedelta(minutes=5)
_AT_A_TIME: Final = 1000
_ASKED: Final = "seamark"


class UnfinishedUpload(NamedTuple):
    """One upload of an object that does not exist yet."""

    key: str
    """The whole key in the bucket."""
    upload_id: str
    started: float
    """Seconds since 1970."""


class Bucket:
    """Questions about a bucket of S3 that the client has no call for."""

    def __init__(
        self, blobs: ObjectBlobs, store: S3Store, seconds: float = limits.ANSWER_SECONDS
    ) -> None:
        self.url = blobs.url
        self._until = time.monotonic() + seconds
        self._store = store
        self._prefix = "/".join(part for part in str(store.prefix or "").split("/") if part)

    @classmethod
    def of(cls, blobs: ObjectBlobs) -> Bucket | None:
        """The bucket of a store; None for one that is not on S3."""
        store = blobs.client
        return cls(blobs, store) if isinstance(store, S3Store) else None

    @property
    def name(self) -> str:
        """Its name, as a command for S3 takes it."""
        return str(self._store.config.get("bucket", ""))

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        """Every upload below the store's prefix, those in progress too.

        :class:`StoreUnavailableError` when the service does not say, or may not.
        """
        found: list[UnfinishedUpload] = []
        after: dict[str, str] = {}
        below = f"{self._prefix}/" if self._prefix else ""
        for _ in range(limits.MOST_ANSWERS):
            page = self._asked("uploads", {"prefix": below, **after})
            found += [_upload(each) for each in _all(page, "Upload")[:_AT_A_TIME]]
            if _text(page, "IsTruncated") != "true":
                break
            after = {
                "key-marker": _text(page, "NextKeyMarker"),
                "upload-id-marker": _text(page, "NextUploadIdMarker"),
            }
        return [each for each in found if each.key.startswith(below)]

    def removes_unfinished(self) -> bool:
        """Whether a lifecycle rule of the bucket removes them by itself."""
        try:
            rules = _all(self._asked("lifecycle", {}), "Rule")
        except StoreUnavailableError:
            return False  # there are no rules, or they may not be seen
        return any(
            _all(rule, "AbortIncompleteMultipartUpload")
            and _text(rule, "Status") == "Enabled"
            and self._prefix.startswith(_prefix_of(rule).rstrip("/"))
            for rule in rules
        )

    def _asked(self, question: str, parameters: Mapping[str, str]) -> ElementTree.Element:
        address = self._signed(urlencode({question: "", **parameters}))
        try:
            answer = get_answer(
                address, longest=limits.LARGEST_ANSWER, seconds=self._until - time.monotonic()
            )
            return ElementTree.fromstring(answer, ElementTree.XMLParser(target=_NoEntities()))
        except HTTPError as error:
            with error:
                why = f"{error.code} {error.reason}"
        except (OSError, HTTPException, ElementTree.ParseError, ValueError, LookupError) as error:
            why = type(error).__name__
        # the address holds a signature: neither it nor an error that repeats it is shown
        raise StoreUnavailableError(f"the service does not answer ?{question}: {why}") from None

    def _signed(self, query: str) -> str:
        """The address of the bucket with a query, signed.

        The client appends its object's name to whatever it takes for the address of a bucket. A
        parameter that begins with x- is ignored by S3, and takes that name in.
        """
        try:
            whole = self._with({})
            probe = urlsplit(obstore.sign(whole, "GET", _ASKED, _VALID))
            path = probe.path.removesuffix(_ASKED).rstrip("/") or "/"
            root = urlunsplit((probe.scheme, probe.netloc, path, "", ""))
            asking = self._with(
                {"endpoint": f"{root}?{query}&x-by=", "virtual_hosted_style_request": True}
            )
            return obstore.sign(asking, "GET", _ASKED, _VALID)
        except (BaseError, ValueError):
            raise StoreUnavailableError(
                "the address of the bucket cannot be signed", where=self.url
            ) from None

    def _with(self, changes: Mapping[str, Any]) -> S3Store:
        """The same client for the whole bucket, with other settings."""
        config: Any = {**self._store.config, **changes}
        return S3Store(
            config=config,
            client_options=self._store.client_options,
            credential_provider=self._store.credential_provider,
        )


class _NoEntities(ElementTree.TreeBuilder):
    """Makes elements of an answer without a document type.

    S3 sends none, and what one declares may make a hundred times as many bytes of an answer.
    """

    def doctype(self, *_: str | None) -> None:
        """The answer is refused as one that makes no sense."""
        raise ValueError("an answer with a document type")


def _upload(found: ElementTree.Element) -> UnfinishedUpload:
    try:
        started = datetime.fromisoformat(_text(found, "Initiated")).timestamp()
    except ValueError:
        started = datetime.now(UTC).timestamp()
    return UnfinishedUpload(_text(found, "Key"), _text(found, "UploadId"), started)


def _all(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return list(element.iterfind(f"{{*}}{name}"))


def _prefix_of(rule: ElementTree.Element) -> str:
    places = ("{*}Prefix", "{*}Filter/{*}Prefix", "{*}Filter/{*}And/{*}Prefix")
    return next((text for place in places if (text := rule.findtext(place))), "")


def _text(element: ElementTree.Element, name: str) -> str:
    return next((each.text or "" for each in _all(element, name)), "")
