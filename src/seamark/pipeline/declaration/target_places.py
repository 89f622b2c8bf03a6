"""Where a sink's target really is, however it is spelled: to tell whether two are one.

Tests: ``tests/pipeline/test_target_places.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from seamark.blobs.addresses import OBJECT_STORES, is_this_machine
from seamark.errors import RefusedError
from seamark.sinks.folders import is_hidden

PLACELESS: Final = frozenset({"function", "console", "memory"})
"""Kinds of sinks whose description does not say where the rows go, if anywhere."""

_FOLDERS: Final = OBJECT_STORES | {
    "s3n": "s3",
    "wasb": "azure",
    "wasbs": "azure",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
"""Schemes whose paths are folders, by the service that they mean."""
_LOCAL: Final = ("file", "rocksdb")
_PORTS: Final = {
    "redis": "6379",
    "rediss": "6379",
    "http": "80",
    "https": "443",
    "postgres": "5432",
    "postgresql": "5432",
}
_LOOPBACK: Final = "this machine"
_IN_FOLDERS: Final = ("files", "delta", "key-value")
"""Kinds of sinks that may write below a folder that is named by their description."""


@dataclass(frozen=True)
class Place:
    """A target as it can be compared with another one."""

    service: str
    servers: frozenset[str]
    """Any one of them leads there; empty for this machine's disks."""
    parts: tuple[str, ...]
    is_folder: bool = False
    """Whether what lies inside of it belongs to it."""


def named_target(pipeline: str, sink: str, kind: str, target: str) -> str:
    """A target with what the names of its output add to it: a view's namespace in Redis."""
    if kind == "key-value" and target.startswith("redis") and "?" not in target:
        return f"{target}?namespace={pipeline}/{sink}"
    return target


def place_of(kind: str, target: str) -> Place:
    """The place that a sink's description means. Links of this machine's disks are followed."""
    if kind == "iceberg":
        return _table_of_catalog(target)
    scheme, separator, _ = target.partition("://")
    if separator:
        return _of_url(scheme.lower(), target)
    if kind in ("kafka", "postgres"):
        servers, _, rest = target.partition("/")
        return Place(kind, _servers(servers, ""), _parts(rest))
    return _folder(target)


def are_one_place(one: Place, other: Place) -> bool:
    """Whether two are the same place, or one lies inside the other."""
    if one.service != other.service or one.is_folder != other.is_folder:
        return False
    if one.servers != other.servers and not one.servers & other.servers:
        return False
    shorter = min(len(one.parts), len(other.parts)) if one.is_folder else None
    return one.parts[:shorter] == other.parts[:shorter]


def require_places_apart(pipeline: str, sinks: Mapping[str, Mapping[str, Any]]) -> None:
    """:class:`RefusedError` when what one output writes is in the folder of files of another one.

    Whoever reads that folder would see the rows of both, unless a name hides them, and the folders
    of a sink's own would meet. Tables may have several outputs. ``sinks`` are described as in a
    structure.
    """
    places = {
        name: place_of(sink["kind"], named_target(pipeline, name, sink["kind"], sink["target"]))
        for name, sink in sinks.items()
        if sink["kind"] in _IN_FOLDERS
    }
    for one, other in combinations(places, 2):
        has_files = "files" in (sinks[one]["kind"], sinks[other]["kind"])
        outer, inner = sorted((places[one], places[other]), key=lambda place: len(place.parts))
        is_seen = not is_hidden(inner.parts[len(outer.parts) :])
        if has_files and is_seen and are_one_place(outer, inner):
            raise RefusedError(
                f"outputs {one!r} and {other!r} write to one folder, or one inside that of the "
                "other, and readers of files would see the rows of both",
                where=f"{sinks[one]['target']}, {sinks[other]['target']}",
                hint="Give each a folder of its own.",
            )


def _folder(path: str) -> Place:
    real = os.path.realpath(path.replace("\x00", ""))
    return Place("disk", frozenset(), _parts(real), is_folder=True)


def _of_url(scheme: str, url: str) -> Place:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return Place(scheme, frozenset(), (url,))
    if scheme in _LOCAL:
        return _folder(unquote(parts.path))
    if scheme in _FOLDERS:
        inside = [parts.username] if scheme.startswith(("abfs", "wasb")) and parts.username else []
        folder = (*inside, *_parts(unquote(parts.path)))
        return Place(_FOLDERS[scheme], frozenset({_host(host)}), folder, is_folder=True)
    # a server has its default port, and a view in Redis the namespace in the query
    address = f"{_host(host)}:{port or _PORTS.get(scheme, '')}"
    query = (parts.query,) if parts.query else ()
    service = {"rediss": "redis", "https": "http"}.get(scheme, scheme)
    return Place(service, frozenset({address}), (*_parts(parts.path), *query))


def _table_of_catalog(target: str) -> Place:
    """``catalog.namespace.table at URI``: the catalog's name is only what it is called here."""
    name, separator, uri = target.partition(" at ")
    if not separator:
        return Place("iceberg", frozenset(), (name,))
    server = _of_url(uri.partition("://")[0].lower(), uri) if "://" in uri else _folder(uri)
    table = name.partition(".")[2] or name
    return Place("iceberg", server.servers, (*server.parts, table))


def _servers(text: str, default: str) -> frozenset[str]:
    servers = set()
    for server in text.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host:
            host, port = port, default
        servers.add(f"{_host(host)}:{port}")
    return frozenset(servers)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _host(host: str) -> str:
    """A host's name; all names of this machine are one."""
    bare = host.strip("[]").rstrip(".").lower()
    return _LOOPBACK if is_this_machine(bare) else bare
