"""``seamark sources``: how far each source has been read, also while a pipeline runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import click

from seamark._common.os_errors import translate_os_errors
from seamark.cli.checkpoint_summary import positions
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.store_argument import load, local_path, opened_store, require_path, resolve_id
from seamark.errors import CheckpointNotFoundError
from seamark.progress.store import SourceCheckpointStore
from seamark.progress.urls import open_progress, rocksdb_path, rocksdb_url
from seamark.store import CheckpointStore

_REMOTE: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")
_IN_STORE: Final = "progress"
_DEEPEST: Final = 4


@click.command("sources", cls=Command)
@click.argument("url", type=PLACE)
@click.option("--namespace", help="Namespace of a Redis store, unless the URL has it.")
def command(url: str, namespace: str | None) -> None:
    """Show how far the sources of a pipeline have been read.

    URL is a progress store (redis://host/0?namespace=NAME, rocksdb:///path) or a store of
    checkpoints. For a store of checkpoints, the progress store inside it is shown or, if there is
    none, the positions of the newest valid checkpoint. Nothing is written, so a pipeline may be
    running.
    """
    progress = _progress_url(url)
    if progress is None:
        with opened_store(url) as store:
            document = _of_checkpoint(store)
    else:
        with open_progress(progress, namespace=namespace, read_only=True) as progress_store:
            document = _of_progress(progress_store)
    print_answer(document, _show)


def _progress_url(url: str) -> str | None:
    """The URL of the progress store that is meant; None for a store that has checkpoints alone."""
    if urlsplit(url).scheme.lower() in _REMOTE:
        return None
    path = local_path(url)
    if path is not None:
        require_path(path, "progress store")
        inside = f"{path}/{_IN_STORE}"
        has_checkpoints = any(os.path.exists(f"{path}/{n}") for n in ("owner.json", "checkpoints"))
        if not _is_rocksdb(inside) and not _is_rocksdb(path) and has_checkpoints:
            return None
        url = rocksdb_url(inside if _is_rocksdb(inside) else path)
    if url.lower().startswith("rocksdb:"):
        folder = rocksdb_path(url)
        if folder.startswith("/"):
            require_path(folder, "progress store")
            _require_rocksdb(folder)
    return url


def _of_checkpoint(store: CheckpointStore) -> Document:
    """Where the newest whole checkpoint stands."""
    manifest = load(store, resolve_id(store, "latest"))
    sources = [
        _source(name, manifest.epoch, "json", offsets, None)
        for name, offsets in sorted(positions(manifest.source_offsets).items())
    ]
    return _document(store.url, manifest.checkpoint_id, manifest.pipeline_hash, sources)


def _is_rocksdb(folder: str) -> bool:
    return os.path.isfile(f"{folder}/CURRENT")


def _require_rocksdb(folder: str) -> None:
    with translate_os_errors("listing", folder):
        os.listdir(folder)  # one that may not be read is not one without a store
    if not _is_rocksdb(folder):
        raise CheckpointNotFoundError(
            "there is no progress store in this folder",
            where=folder,
            hint="A pipeline on a local store keeps one inside the store as soon as it runs; on a "
            "remote store it is where its option progress= says.",
        )


def _of_progress(store: SourceCheckpointStore) -> Document:
    sources = [
        _source(name, at.sequence, *readable(at.source_position), len(at.source_position or b""))
        for name, at in sorted(store.read_all_checkpoints().items())
    ]
    return _document(store.url, None, store.read_config_hash(), sources)


def _document(
    url: str, checkpoint_id: int | None, config_hash: int | None, sources: list[Document]
) -> Document:
    return {
        "store": url,
        "checkpoint": checkpoint_id,
        # as text: few programs that read JSON keep all 64 bits of a number
        "config_hash": None if config_hash is None else f"{config_hash:016x}",
        "sources": sources,
    }


def _source(
    name: str, sequence: int, encoding: str | None, position: Any, size: int | None
) -> Document:
    return {
        "name": name,
        "sequence": sequence,
        "position": position,
        "position_encoding": encoding,
        "position_bytes": size,
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
    raise ValueError(f"{name} is not JSON")


def _show(document: Document) -> None:
    rows = document["sources"]
    if not rows:
        print_paragraph(f"No source is recorded in {document['store']}.")
    else:
        print_rows(
            ["SOURCE", "SEQUENCE", "PARTITION", "POSITION"],
            [cells for row in rows for cells in _cells(row)],
            right="SEQUENCE",
        )
    print_paragraph(f"configuration hash {document['config_hash'] or 'not written'}")
    if rows and document["checkpoint"] is not None:
        print_hint(f"As checkpoint {document['checkpoint']} has it; its epoch is the sequence.")
    elif rows:
        print_hint("A pipeline records its epoch as the sequence.")


def _cells(row: Document) -> Iterator[tuple[str, str, str, str]]:
    """One line for each partition; what is the same as above is left out."""
    first = (str(row["name"]), str(row["sequence"]))
    for number, (part, text) in enumerate(_parts(row)):
        yield (*(first if number == 0 else ("", "")), part, text)


def _parts(row: Document) -> list[tuple[str, str]]:
    position, encoding = row["position"], row["position_encoding"]
    if encoding is None or position == {}:
        return [("–", "–" if encoding is None else "at its beginning")]
    if encoding == "json":
        return list(_flat(position))
    return [("–", str(position) if encoding == "text" else f"hex {position}")]


def _flat(position: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """``{"trades": {"0": 600}}`` as ``trades-0`` with ``600``; values that are no objects whole."""
    if isinstance(position, dict) and position and name.count("\0") < _DEEPEST:
        for key, value in position.items():
            yield from _flat(value, f"{name}\0{key}" if name else str(key))
        return
    text = position if isinstance(position, str) else json.dumps(position, ensure_ascii=False)
    yield name.replace("\0", "-") or "–", text
