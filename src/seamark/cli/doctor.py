"""``seamark doctor``: whether a store can be relied on, and what to do where it cannot."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import click

from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import plural, print_facts, print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint, styled
from seamark.cli.store_argument import opened_store
from seamark.errors import SeamarkError
from seamark.progress.ledger import Ledger
from seamark.progress.rocksdb.first_look import require_readable
from seamark.progress.urls import open_ledger, rocksdb_path
from seamark.reports.places import require_path
from seamark.reports.store_health import check_store, health_document
from seamark.store.health import HealthCheck, check_disk, failed, ok, tried, warning
from seamark.store.inspection import planned_rebuild
from seamark.store.owner_rebuild import OwnerRebuild

_NO_NAMESPACE = "doctor"
_PROGRESS = ("redis", "rediss", "rocksdb")


@click.command("doctor", cls=Command)
@click.argument("store", type=PLACE)
@click.option("--read-only", is_flag=True, help="Write nothing, not even a probe.")
@click.option(
    "--rebuild-owner", is_flag=True, help="Rebuild an owner.json that is damaged or lost."
)
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would be done.")
def command(store: str, read_only: bool, rebuild_owner: bool, yes: bool) -> None:
    """Check whether a store can be relied on.

    STORE is a store of checkpoints or a progress store (redis://, rocksdb://). Small probe objects
    are written and removed again. Warnings alone are not a failure.
    """
    if rebuild_owner or yes:
        _rebuild(store, rebuild_owner=rebuild_owner, read_only=read_only, yes=yes)
        return
    if urlsplit(store).scheme.lower() in _PROGRESS:
        url, checks = _check_progress(store)
    else:
        with opened_store(store) as opened:
            url, checks = opened.url, check_store(opened, write=not read_only)
    print_answer(health_document(url, checks) | {"read_only": read_only}, _show)


# progress stores


def _check_progress(url: str) -> tuple[str, list[HealthCheck]]:
    if url.lower().startswith("rocksdb:"):
        path = os.path.realpath(rocksdb_path(url))
        require_path(path, "progress store")
        require_readable(path)
        ledger = open_ledger(url, read_only=True)
        checks = [tried("read", lambda: _sources(ledger)), *check_disk(path)]
    else:
        named = "namespace" in parse_qs(urlsplit(url).query)
        ledger = open_ledger(url, namespace=None if named else _NO_NAMESPACE, read_only=True)
        checks = [tried("read", lambda: _sources(ledger) if named else ok("read", "it answers"))]
        checks += _persistence(ledger)
    shown = ledger.url.removesuffix(f"?namespace={_NO_NAMESPACE}")
    ledger.close()
    return shown, checks


def _sources(ledger: Ledger) -> HealthCheck:
    return ok("read", f"it answers; {plural(len(ledger.checkpoints()), 'source')} recorded")


def _persistence(ledger: Ledger) -> list[HealthCheck]:
    from seamark.progress.redis.client import persistence_warnings
    from seamark.progress.redis.ledger import RedisLedger

    if not isinstance(ledger, RedisLedger):
        return []
    try:
        warnings = persistence_warnings(ledger.client)
    except SeamarkError as error:
        return [failed("persistence", error)]
    advice = "What a pipeline has recorded there may be lost; its checkpoints are not touched."
    checks = [warning("persistence", text, advice) for text in warnings]
    return checks or [ok("persistence", "every acknowledged write is on its disk")]


# showing


def _show(document: Document) -> None:
    checks = document["checks"]
    print_rows(
        ["CHECK", "RESULT", "FOUND"],
        [(check["name"], styled(check["verdict"]), check["found"]) for check in checks],
        notes=[check["advice"] or "" for check in checks],
    )
    if document["failed"]:
        print_paragraph(f"{document['failed']} failed, {document['warnings']} warnings.")
    elif document["warnings"]:
        print_paragraph(f"It works; {plural(document['warnings'], 'warning')}.")
    elif document["read_only"]:
        print_paragraph("Nothing wrong was found. Whether writes can be relied on was not tried.")
    else:
        print_paragraph("It can be relied on.")


# a new owner.json


def _rebuild(url: str, *, rebuild_owner: bool, read_only: bool, yes: bool) -> None:
    """Show what a new ``owner.json`` would say; with ``yes``, write it."""
    if not rebuild_owner:
        raise click.UsageError("--yes is for --rebuild-owner; doctor itself changes nothing")
    if read_only and yes:
        raise click.UsageError("--read-only and --yes cannot be used together")
    with opened_store(url) as store:
        plan = planned_rebuild(store)
        if yes:
            plan = replace(plan, owner=store.rebuild_owner())
        document = _rebuild_document(store.url, plan, done=yes)
    print_answer(document, lambda clean: _show_rebuild(clean, url))


def _rebuild_document(url: str, plan: OwnerRebuild, *, done: bool) -> Document:
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


def _show_rebuild(document: Document, url: str) -> None:
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
        print_hint(f"Is all well now?  seamark doctor {shlex.quote(url)}")
    else:
        print_paragraph("Nothing was changed.")
        print_hint(f"To do it:  seamark doctor {shlex.quote(url)} --rebuild-owner --yes")
