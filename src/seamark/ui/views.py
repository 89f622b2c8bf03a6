"""What each page and each address below ``/api`` says, as documents. Reads through shared answers.

Tests: ``tests/ui/test_pages.py``.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from seamark._common.checks import I64_MAX
from seamark.errors import CheckpointNotFoundError, SeamarkError, StoreUnavailableError
from seamark.reports.checkpoint_document import describe
from seamark.reports.checkpoint_summary import listing_document, summary_of
from seamark.reports.difference import difference
from seamark.reports.document import Document
from seamark.reports.named_checkpoints import use_named
from seamark.store.inspection import require_listed, require_same_history, scan_chosen
from seamark.store.owner import known_pins
from seamark.ui.bounds import MOST_POINTS, ROWS
from seamark.ui.directory_watch import DirectoryWatch
from seamark.ui.history import history_document, table_rows, window_of
from seamark.ui.overview import directory_row, looking, not_answering, store_row, trouble
from seamark.ui.places import Place
from seamark.ui.points import Point, bytes_of
from seamark.ui.store_watch import StoreState, StoreWatch

_ID: Final = re.compile(r"[0-9]{1,19}")


class NotThere(SeamarkError):
    """No page has this address."""


def checkpoint_number(text: str) -> int:
    """The id in an address; :class:`NotThere` for anything else."""
    if not _ID.fullmatch(text) or not 0 < (number := int(text)) <= I64_MAX:
        raise NotThere(
            f"{text[:40]!r} is not the number of a checkpoint",
            hint="Checkpoints are named by their numbers here.",
        )
    return number


def place_row(place: Place) -> Document:
    """What the overview says of one place."""
    watch = place.watch
    row: Document
    if isinstance(watch, StoreWatch) and place.looked_at is not None:
        row = store_row(watch.state, watch.points, time.time())
    elif isinstance(watch, DirectoryWatch):
        row = directory_row(watch.document)
    else:
        row = {"kind": "unknown", "health": looking()._asdict()}
    if place.error is not None:
        row["health"] = not_answering(place.error)._asdict()
    return row | {
        "slug": place.slug,
        "name": place.name,
        "url": place.url,
        "revision": place.revision,
        "running": None if place.running is None else place.running(),
        "looked_at_ms": None if place.looked_at is None else int(place.looked_at * 1000),
        "error": None if place.error is None else error_document(place.error),
        "failing_since_ms": None
        if place.failing_since is None
        else int(place.failing_since * 1000),
    }


def health_word(place: Place) -> str:
    """How a place is, in one word."""
    return str(place_row(place)["health"]["word"])


def running_step(place: Place) -> tuple[int | None, str] | None:
    """Which epoch runs and its step, where the page is served by a pipeline."""
    if place.running is None:
        return None
    now = place.running()
    return now["epoch"], now["step"]


def overview(places: Sequence[Place]) -> Document:
    """All places, those in trouble first, and how many are how."""
    rows = sorted(map(place_row, places), key=trouble)
    words: dict[str, Document] = {}
    for row in rows:
        health = row["health"]
        word = words.setdefault(health["word"], {"level": health["level"], "places": 0})
        word["places"] += 1
    return {"places": rows, "health": words}


def error_document(error: SeamarkError) -> Document:
    """An error as the commands print it with ``--json``."""
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def store_of(place: Place) -> StoreWatch:
    """The store at a place; an error when it is none, or not known to be one yet."""
    if isinstance(place.watch, StoreWatch):
        return place.watch
    if place.error is not None:
        raise place.error
    if place.watch is None:
        raise StoreUnavailableError("no answer yet", where=place.url, hint="Try again in a moment.")
    raise NotThere("this is not a store of checkpoints", where=place.url)


async def history(
    place: Place, first: int | None, last: int | None, others: Sequence[Place] = ()
) -> Document:
    """The data of the picture; by default its newest end. ``others`` may be forks of this store."""
    watch = store_of(place)

    def made() -> Document:
        state = watch.state
        forks = _forks(state.url, others)
        marked = {*known_pins(state.owner), *forks, *(i for i, _ in state.owner.fences)}
        window = window_of(state.ids, first, last, marked=marked, most=MOST_POINTS)
        watch.read(window.drawn)
        return history_document(state, window, watch.points, forks)

    # the same for all viewers until there is news, also of a fork
    news = (place.revision, *(other.revision for other in others))
    return await place.answers.get(("history", first, last, news), made)


def _forks(url: str, others: Sequence[Place]) -> dict[int, list[str]]:
    """Which of some places are forks of a store: their names, by the checkpoint that they took."""
    forks: dict[int, list[str]] = {}
    for other in others:
        if not isinstance(other.watch, StoreWatch):
            continue
        points = other.watch.points
        newest = points[max(points)] if points else None
        if newest is not None and newest.origin is not None and newest.origin[0] == url:
            forks.setdefault(newest.origin[1], []).append(other.name)
    return forks


async def _points(place: Place, watch: StoreWatch, ids: Sequence[int]) -> dict[int, Point]:
    """What is known of some checkpoints, and of others; those that were never read are read."""
    known = watch.points
    missing = [i for i in ids if i not in known]
    if not missing:
        return known
    await place.answers.get(("points", *missing), partial(watch.read, missing))
    return watch.points


async def table(place: Place, before: int | None) -> Document:
    """One page of the table of checkpoints, newest first."""
    watch = store_of(place)
    state = watch.state
    end = len(state.ids) if before is None else bisect_left(state.ids, before)
    ids = state.ids[max(0, end - ROWS) : end][::-1]
    points = await _points(place, watch, ids)
    newer = state.ids[end : end + ROWS + 1]
    return {
        "rows": table_rows(state, ids, points),
        "total": len(state.ids),
        "before": before,
        "older": ids[-1] if end > ROWS else None,
        "newer": None if before is None else newer[-1] if len(newer) > ROWS else 0,
        "pins": {name: pin.checkpoint_id for name, pin in state.owner.pins.items()},
    }


async def listing(place: Place, before: int | None) -> Document:
    """What ``seamark list --json`` prints, of one page of checkpoints."""
    watch = store_of(place)

    def read(state: StoreState) -> Document:
        if state.damage is not None:
            raise state.damage
        end = len(state.ids) if before is None else bisect_left(state.ids, before)
        ids = state.ids[max(0, end - ROWS) : end][::-1]
        found = {
            one.checkpoint_id: replace(summary_of(one), new_bytes=bytes_of(one))
            for one in scan_chosen(watch.store, ids, state.owner)
        }
        require_listed(watch.store, state.owner, [i for i in ids if i not in found])
        owner = require_same_history(watch.store, state.owner)
        document = listing_document(watch.store.url, owner, found)
        for row in document["checkpoints"]:  # chains may reach beyond the page
            row["full_bytes"] = found[row["id"]].restore_bytes
            del row["referenced_bytes"]
        return document | {"total": len(state.ids), "before": ids[-1] if end > ROWS else None}

    ask = partial(watch.settled, read)
    return await place.answers.get(("list", before, place.revision), ask)


async def checkpoint(place: Place, number: int) -> Document:
    """What ``seamark show --json`` prints."""
    watch = store_of(place)
    ids = watch.state.ids
    if place.error is None and number > (ids[-1] if ids else 0):
        await place.look()  # it may have come just now
    if place.error is None and number not in watch.state.known:
        raise CheckpointNotFoundError(
            f"there is no checkpoint {number}",
            where=place.url,
            hint="The history has all that there are; others were pruned or never saved.",
        )
    return await place.answers.get(
        ("show", number),
        lambda: use_named(watch.store, str(number), partial(describe, watch.store)),
    )


async def chain(place: Place, shown: Document) -> list[Document]:
    """A checkpoint and what it builds on as rows of a table, newest first, as far as they fit."""
    watch = store_of(place)
    ids = [shown["id"], *shown["parents"]][:ROWS]
    return table_rows(watch.state, ids, await _points(place, watch, ids))


async def compared(place: Place, a: int, b: int) -> Document:
    """What ``seamark diff --json`` prints."""
    before, after = await checkpoint(place, a), await checkpoint(place, b)
    return await place.answers.get(("diff", a, b), partial(difference, before, after))


def neighbours(place: Place, number: int) -> Document:
    """The checkpoints before and after one; None where there is none."""
    ids = store_of(place).state.ids
    at = bisect_left(ids, number)
    after = at + (at < len(ids) and ids[at] == number)
    return {
        "older": ids[at - 1] if at > 0 else None,
        "newer": ids[after] if after < len(ids) else None,
    }


def newest(place: Place) -> int:
    """The id that ``latest`` in an address means; :class:`CheckpointNotFoundError` if none."""
    ids = store_of(place).state.ids
    if not ids:
        raise CheckpointNotFoundError("the store is empty", where=place.url)
    return ids[-1]


def directory(place: Place) -> Document:
    """What ``seamark spark inspect --json`` prints."""
    watch = place.watch
    if isinstance(watch, DirectoryWatch) and watch.document is not None:
        return watch.document
    if place.error is not None:
        raise place.error
    raise NotThere("this is not a checkpoint directory of Spark's", where=place.url)
