"""From a path or URL to a backend, and where an object store really is, however it is spelled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from seamark._common.checks import check_text
from seamark._redaction import has_password, is_broken_url, without_user
from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import InvalidInputError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
OBJECT_STORES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "azure",
    "azure": "azure",
    "adl": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
"""Schemes of object stores, by the service that they mean."""
_PORTS: Final = {"http": 80, "https": 443}
_ENDPOINTS: Final = {
    "S3Store": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "AzureStore": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ACCOUNTS: Final = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
_LOOPBACK: Final = "loopback"


def open_blobs(
    where: Blobs | ObjectStore | str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    conditional: bool = True,
) -> Blobs:
    """The backend at a path or URL, under an obstore store, or the one that is given.

    A directory that is given as obstore's ``LocalStore`` is opened by our own backend, which
    makes durable what it writes.
    """
    if isinstance(where, Blobs):
        return where
    if isinstance(where, str | os.PathLike):
        return backend_at(where, storage_options, conditional=conditional)
    from obstore.store import LocalStore

    from seamark.blobs.object_store import ObjectBlobs

    if isinstance(where, LocalStore):
        return FilesystemBlobs(os.fspath(where.prefix or "/"))
    return ObjectBlobs(where, type(where).__name__)


def backend_at(
    where: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, *, conditional: bool
) -> Blobs:
    """The backend at a path or URL."""
    url, options = _text(where), _options(storage_options)
    if "\x00" in url:
        raise InvalidInputError("a store's path or URL may not hold NUL")
    refuse_broken_url(url)
    if not _SCHEME.match(url):
        return _no_options(FilesystemBlobs(url), options)
    parts = without_credentials(url)
    scheme = parts.scheme.lower()
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InvalidInputError(f"a file URL looks like file:///path, not {url!r}")
        path = unquote(parts.path)
        check_text(path.replace("\x00", ""), "a path")
        if "\x00" in path:
            raise InvalidInputError("a path may not hold NUL")
        return _no_options(FilesystemBlobs(path), options)
    if scheme == "memory":
        name = parts.netloc + parts.path.rstrip("/")
        return _no_options(MemoryBlobs.named(name), options)
    if scheme not in OBJECT_STORES:
        raise InvalidInputError(
            f"no store can be opened by {scheme}://",
            hint="Known are a path, file://, s3://, gs://, az://, abfs://, abfss://, memory://.",
        )
    from seamark.blobs.object_store import ObjectBlobs  # loaded only when it is needed

    return ObjectBlobs.open(url.rstrip("/"), options, conditional=conditional)


def without_credentials(url: str) -> SplitResult:
    """The parts of a URL; :class:`InvalidInputError` when it carries credentials or a query.

    To be asked before anything of a URL is shown: a password may hold any character, and what
    looks like the last folder may be the rest of one.
    """
    try:
        parts = urlsplit(url)
        # a container before the @ belongs to an Azure URL; a password never belongs to any
        azure = parts.scheme.lower() in ("abfs", "abfss")
        secret = has_password(url) or (parts.username is not None and not azure)
    except ValueError:
        raise InvalidInputError("the store's URL cannot be read") from None
    if secret or parts.query or parts.fragment:
        raise InvalidInputError(
            f"a {parts.scheme.lower()}:// URL may not carry credentials or a query",
            hint="Give credentials by storage_options or by the environment.",
        )
    return parts


def refuse_broken_url(url: str) -> None:
    """:class:`InvalidInputError` for a URL that has lost its slashes. It repeats nothing secret."""
    if is_broken_url(url):
        raise InvalidInputError(
            f"{without_user(url)!r} looks like a URL that went through a path",
            hint="Give URLs as text, not as Path, with two slashes after the scheme.",
        )


def _text(url: str | os.PathLike[str]) -> str:
    path = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    return check_text(path, "a store's path or URL")


def _options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise InvalidInputError("storage_options are names with values")
    return dict(options)


def _no_options(blobs: Blobs, options: Mapping[str, Any]) -> Blobs:
    if options:
        raise InvalidInputError(
            f"storage options mean nothing here: {', '.join(sorted(options))}",
            where=blobs.url,
            hint="They are for s3://, gs:// and az:// stores.",
        )
    return blobs


def address_of(
    kind: str,
    config: Mapping[str, Any],
    prefix: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Kind of store, service, bucket and folders; empty when the bucket is not known.

    What the options leave out, the client takes from the environment. Two names of this machine
    are one service, and so are a bucket in the host's name, in the path, and next to it.
    """
    bucket = str(config.get("bucket") or config.get("container_name") or "")
    if not bucket:
        return ()
    env = os.environ if environment is None else environment
    endpoint = str(config.get("endpoint") or _first(env, _ENDPOINTS.get(kind, ())))
    account = str(config.get("account_name") or _first(env, _ACCOUNTS)).lower()
    folders = [part for part in prefix.split("/") if part]
    return (kind, _service(kind, endpoint, bucket, account), bucket, *folders)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _service(kind: str, endpoint: str, bucket: str, account: str) -> str:
    """Host, port and path of a service."""
    if not endpoint:
        return account if kind == "AzureStore" else ""
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        port = parts.port or _PORTS.get(parts.scheme.lower(), 0)
    except ValueError:
        return endpoint.rstrip("/")
    host = (parts.hostname or "").rstrip(".").removeprefix(f"{bucket.lower()}.")
    path = [part for part in parts.path.split("/") if part]
    if path[-1:] == [bucket]:
        path.pop()
    if kind == "S3Store" and host.endswith(".amazonaws.com") and host.startswith("s3"):
        return ""  # buckets of Amazon have names of their own
    if kind == "AzureStore" and host.endswith(".core.windows.net"):
        return host.partition(".")[0]
    return "/".join([f"{_LOOPBACK if is_this_machine(host) else host}:{port}", *path])


def is_this_machine(host: str) -> bool:
    """Whether a host's name or address always means the machine that asks."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def can_hold_a_store(url: str) -> bool:
    """Whether a store can be opened by a URL of this scheme; a path is one of ``file:``."""
    is_url = _SCHEME.match(url) is not None
    return not is_url or url.partition(":")[0].lower() in ("file", "memory", *OBJECT_STORES)
