"""``seamark sources``: how far each source is, read beside whoever writes it."""

from __future__ import annotations

import json
import os
from typing import Any, Final
from urllib.parse import urlsplit

import click

from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, answer, hint
from seamark.cli.places import PLACE
from seamark.cli.settings import Command
from seamark.cli.stores import local_path, require_path
from seamark.errors import CheckpointNotFoundError, InvalidInputError
from seamark.progress.checkpoints import SourceCheckpoint
from seamark.progress.opening import open_progress, rocksdb_path, rocksdb_url
from seamark.progress.store import SourceCheckpointStore
from seamark.store.os_errors import telling

_REMOTE: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")
_IN_STORE: Final = "progress"


@click.command("sources", cls=Command)
@click.argument("url", type=PLACE)
@click.option("--namespace", help="Of a Redis store, unless it is in the URL.")
def command(url: str, namespace: str | None) -> None:
    """Show how far the sources of a progress store are.

    URL is redis://host/0?namespace=NAME, rocksdb:///path, or the path of a checkpoint store that
    keeps its progress beside it. It is only read, also while a pipeline writes to it.
    """
    with _opened(url, namespace) as store:
        document = _document(store)
    answer(document, _show)


def _opened(url: str, namespace: str | None) -> SourceCheckpointStore:
    scheme = urlsplit(url).scheme.lower()
    if scheme in _REMOTE:
        raise InvalidInputError(
            f"a {scheme}:// store has no progress in it",
            hint="A pipeline records it where its option progress= says: give that URL.",
        )
    path = local_path(url)
    if path is not None:
        require_path(path, "progress store")
        if _is_rocksdb(f"{path}/{_IN_STORE}"):
            path = f"{path}/{_IN_STORE}"
        url = rocksdb_url(path)
    if url.lower().startswith("rocksdb:"):
        folder = rocksdb_path(url)
        if folder.startswith("/"):
            require_path(folder, "progress store")
            _require_rocksdb(folder)
    return open_progress(url, namespace=namespace, read_only=True)


def _is_rocksdb(folder: str) -> bool:
    return os.path.isfile(f"{folder}/CURRENT")


def _require_rocksdb(folder: str) -> None:
    with telling("listing", folder):
        os.listdir(folder)  # one that may not be read is not one without a store
    if not _is_rocksdb(folder):
        raise CheckpointNotFoundError(
            "there is no progress store in this folder",
            where=folder,
            hint="A pipeline on a local store keeps one beside it as soon as it runs; one on a "
            "remote store where its option progress= says.",
        )


def _document(store: SourceCheckpointStore) -> Document:
    found = store.read_all_checkpoints()
    config_hash = store.read_config_hash()
    return {
        "store": store.url,
        # as text: few programs that read JSON keep all 64 bits of a number
        "config_hash": None if config_hash is None else f"{config_hash:016x}",
        "sources": [_source(name, found[name]) for name in sorted(found)],
    }


def _source(name: str, checkpoint: SourceCheckpoint) -> dict[str, Any]:
    encoding, position = readable(checkpoint.source_position)
    return {
        "name": name,
        "sequence": checkpoint.sequence,
        "position": position,
        "position_encoding": encoding,
        "position_bytes": len(checkpoint.source_position or b""),
    }


def readable(position: bytes | None) -> tuple[str | None, Any]:
    """How a position is shown, and as what: JSON and text as they are, anything else in hex."""
    if position is None:
        return None, None
    try:
        text = position.decode("utf-8")
    except UnicodeDecodeError:
        return "hex", position.hex()
    try:
        return "json", json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        pass
    is_plain = all(char.isprintable() or char in "\n\t" for char in text)
    return ("text", text) if is_plain else ("hex", position.hex())


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _show(document: Document) -> None:
    rows = document["sources"]
    if not rows:
        print_paragraph(f"No source is recorded in {document['store']}.")
    else:
        print_rows(
            ["SOURCE", "SEQUENCE", "POSITION"],
            [(row["name"], str(row["sequence"]), _position_text(row)) for row in rows],
            right="SEQUENCE",
        )
    print_paragraph(f"configuration hash {document['config_hash'] or 'not written'}")
    if rows:
        hint("A pipeline records its epoch as the sequence.")


def _position_text(row: dict[str, Any]) -> str:
    position, encoding = row["position"], row["position_encoding"]
    if encoding is None:
        return "–"
    if encoding == "json":
        return json.dumps(position, ensure_ascii=False)
    return str(position) if encoding == "text" else f"hex {position}"
