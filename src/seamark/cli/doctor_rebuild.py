"""``seamark doctor --rebuild-owner``: a new ``owner.json`` where the old one is damaged or lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from seamark.blobs.conditional_writes import Taken, create_once, replace_once
from seamark.blobs.contract import Blob, TagMismatch
from seamark.blobs.probe import ensure_conditional_writes
from seamark.cli.layout import print_facts, print_paragraph
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.store_argument import opened_store
from seamark.errors import DamageError, FencedError, RefusedError
from seamark.store import CheckpointStore
from seamark.store.layout import OWNER_KEY
from seamark.store.manifests import Found, Tombstone
from seamark.store.owner import Owner, decode_owner, encode_owner
from seamark.store.owner_rebuild import rebuilt_owner
from seamark.store.ownership import claim_mark

_LARGEST: Final = 16 << 20


@dataclass(frozen=True)
class Rebuilding:
    """Why there must be a new owner, and what it would say."""

    why: str
    owner: Owner
    before: Blob | None
    """What is in its place."""
    checkpoints: int
    is_alive: bool | None
    """Whether the last writer is; None where that cannot be told."""


def run_rebuild(url: str, *, rebuild_owner: bool, read_only: bool, yes: bool) -> None:
    """Show what a new ``owner.json`` would say; with ``yes``, write it.

    :class:`RefusedError` when the one that is there is as it should be, or none is needed.
    """
    if not rebuild_owner:
        raise click.UsageError("--yes is for --rebuild-owner; doctor itself changes nothing")
    if read_only and yes:
        raise click.UsageError("--read-only and --yes exclude each other")
    with opened_store(url) as store:
        found = planned(store)
        if yes:
            ensure_conditional_writes(store.backend)
            with store.backend.exclusive():
                found = planned(store)  # what is written is told from what is there now
                _write(store, found)
        document = _document(store.url, found, done=yes)
    print_answer(document, lambda clean: _show(clean, url))


def planned(store: CheckpointStore) -> Rebuilding:
    """What would be written, told from the manifests. Nothing is changed."""
    blob = store.backend.read(OWNER_KEY, _LARGEST)
    manifests = store.parts.manifests
    contents = list(manifests.read_many(manifests.ids()))
    newest = _newest_generation([found for _, found in contents])
    before: Owner | None = None
    if blob is None:
        why = "owner.json is gone"
        if newest == 0:
            raise RefusedError(
                "this store has no owner.json, and needs none: nobody has claimed it",
                where=store.url,
                hint="Is the path right?",
            )
    else:
        try:
            before = decode_owner(blob.data)
            why = f"owner.json is too old: it knows generation {before.generation} of {newest}"
        except DamageError as error:
            why = error.what
    if before is not None and before.generation >= newest:
        raise RefusedError("owner.json is whole: there is nothing to rebuild", where=store.url)
    owner = rebuilt_owner(contents, blob.data if blob else b"")
    if before is not None:
        # an old copy is right in what it knows
        owner = msgspec.structs.replace(
            owner,
            pins=before.pins,
            pipeline=before.pipeline,
            prune_boundary=max(before.prune_boundary, owner.prune_boundary),
            kept_below=before.kept_below,
        )
    return Rebuilding(
        why,
        owner,
        blob,
        sum(isinstance(found, Found) for _, found in contents),
        store.backend.is_held(claim_mark(owner.generation - 1)),
    )


def _newest_generation(contents: Sequence[object]) -> int:
    manifests = [found.manifest.generation for found in contents if isinstance(found, Found)]
    claims = [found.generation for found in contents if isinstance(found, Tombstone)]
    return max([0, *manifests, *claims])


def _write(store: CheckpointStore, found: Rebuilding) -> None:
    data = encode_owner(found.owner)
    decode_owner(data)  # what cannot be read back would be no help
    try:
        if found.before is None:
            create_once(store.backend, OWNER_KEY, data, _LARGEST)
        else:
            replace_once(store.backend, OWNER_KEY, data, found.before.tag, _LARGEST)
    except (Taken, TagMismatch):
        raise FencedError(
            "owner.json was changed by somebody else in this moment",
            where=store.url,
            hint="Nothing was written here. Look again.",
        ) from None


def _document(url: str, found: Rebuilding, *, done: bool) -> Document:
    owner = found.owner
    return {
        "store": url,
        "why": found.why,
        "checkpoints": found.checkpoints,
        "generation": owner.generation,
        "next_id": owner.next_id,
        "prune_boundary": owner.prune_boundary,
        "superseded": [list(ids) for ids in owner.superseded],
        "pins": sorted(owner.pins),
        "writer_alive": found.is_alive,
        "done": done,
    }


def _show(document: Document, url: str) -> None:
    done = document["done"]
    print_paragraph(f"{document['why']}.")
    given_up = [f"{first} to {last}" for first, last in document["superseded"]]
    print_facts(
        [
            ("checkpoints", f"{document['checkpoints']} can be read"),
            ("generation", str(document["generation"])),
            ("next id", str(document["next_id"])),
            ("rolled back", ", ".join(given_up) or "none that a manifest tells of"),
        ]
    )
    if document["pins"]:
        print_paragraph(f"Of the pins, those of the old one stay: {', '.join(document['pins'])}.")
    else:
        print_paragraph("Its pins are lost: nothing else knows them.")
    alive = "The last writer is alive" if document["writer_alive"] else "If a writer is still alive"
    print_paragraph(
        f"{alive}{' and' if document['writer_alive'] else ', it'} is fenced by that: it commits "
        "nothing more and has to be started again."
    )
    if done:
        print_paragraph("owner.json is rebuilt.")
        print_hint(f"Is all well now?  seamark doctor {url}")
    else:
        print_paragraph("Nothing was changed.")
        print_hint(f"To do it:  seamark doctor {url} --rebuild-owner --yes")
