"""``seamark doctor --rebuild-owner``: a new ``owner.json`` where the old one is damaged or lost."""

from __future__ import annotations

from dataclasses import replace

import click

from seamark.cli.layout import print_facts, print_paragraph
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.store_argument import opened_store
from seamark.store.inspection import planned_rebuild
from seamark.store.owner_rebuild import OwnerRebuild


def run_rebuild(url: str, *, rebuild_owner: bool, read_only: bool, yes: bool) -> None:
    """Show what a new ``owner.json`` would say; with ``yes``, write it.

    :class:`RefusedError` when the one that is there is as it should be, or none is needed.
    """
    if not rebuild_owner:
        raise click.UsageError("--yes is for --rebuild-owner; doctor itself changes nothing")
    if read_only and yes:
        raise click.UsageError("--read-only and --yes cannot be used together")
    with opened_store(url) as store:
        plan = planned_rebuild(store)
        if yes:
            plan = replace(plan, owner=store.rebuild_owner())
        document = _document(store.url, plan, done=yes)
    print_answer(document, lambda clean: _show(clean, url))


def _document(url: str, plan: OwnerRebuild, *, done: bool) -> Document:
    owner = plan.owner
    return {
        "store": url,
        "why": plan.why,
        "checkpoints": plan.checkpoints,
        "generation": owner.generation,
        "next_id": owner.next_id,
        "prune_boundary": owner.prune_boundary,
        "superseded": [list(ids) for ids in owner.superseded],
        "pins": sorted(owner.pins),
        "writer_alive": plan.is_alive,
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
            ("rolled back", ", ".join(given_up) or "none that a manifest mentions"),
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
