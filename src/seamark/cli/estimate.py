"""``seamark estimate``: what state costs in bytes, requests and seconds."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, Final

import click

from seamark._common.text import grouped, seconds_text, size_text
from seamark.capture.observed_cost import ObservedCost, observed_cost
from seamark.capture.state_cost import (
    HOURS_A_MONTH,
    Cost,
    Estimate,
    Prices,
    StateUse,
    estimate,
)
from seamark.cli.commands import PLACE, Command, duration
from seamark.cli.layout import Cell, plural, print_facts, print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.store_argument import opened_store

_SIZE: Final = re.compile(
    r"([0-9]+(?:\.[0-9]+)?)\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)?", re.IGNORECASE
)
_UNITS: Final = {
    "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip

_MOST_BYTES: Final = 1 << 60
_MOST: Final = 10**9
"""Far more than there is, and few enough that what is worked out from it is a number, too."""


def size(text: str) -> int:
    """Bytes, given with a unit; click's usage error for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter("not a size like 500MiB, 4GiB or 1048576")
    given = float(match[1]) * _UNITS[(match[2] or "B").lower()]
    if given > _MOST_BYTES:
        raise click.BadParameter("more than 1 EiB")
    return round(given)


def share_or_size(text: str) -> float | int:
    """A share like ``1%``, as a float, or a size, as an integer."""
    if not text.endswith("%"):
        return size(text)
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        raise click.BadParameter("not a share like 1% or a size like 40MiB") from None
    if not 0 <= share <= 1:
        raise click.BadParameter("a share is between 0% and 100%")
    return share


_PRICE: Final = click.FloatRange(min=0)


@click.command("estimate", cls=Command)
@click.argument("store", type=PLACE, required=False)
@click.option("--state", type=size, metavar="SIZE", help="All state, as Spark writes it.")
@click.option(
    "--changed",
    type=share_or_size,
    metavar="SHARE",
    help="What an epoch changes: 1% of the state, or 40MiB.",
)
@click.option(
    "--every", type=duration, metavar="DURATION", help="The time from one epoch to the next."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, _MOST),
    default=200,
    show_default=True,
    help="State stores: shuffle partitions; four times as many for a join of two streams.",
)
@click.option(
    "--provider",
    type=click.Choice(["hdfs", "rocksdb", "rocksdb-changelog"]),
    default="rocksdb-changelog",
    show_default=True,
    help="Spark's state store.",
)
@click.option(
    "--keep", type=click.IntRange(1, _MOST), default=20, show_default=True,
    help="The pipeline's 'keep'.",
)  # fmt: skip
@click.option(
    "--full-every", type=click.IntRange(1, 1000), default=10, show_default=True,
    help="The pipeline's 'full_every'.",
)  # fmt: skip
@click.option(
    "--background-rate", type=size, default="64MiB", show_default=True, metavar="SIZE",
    help="The pipeline's 'background_rate', bytes a second.",
)  # fmt: skip
@click.option(
    "--min-deltas", type=click.IntRange(1, _MOST), default=10, show_default=True,
    help="Spark's minDeltasForSnapshot.",
)  # fmt: skip
@click.option(
    "--maintenance", type=duration, default="60s", show_default=True, metavar="DURATION",
    help="Spark's maintenanceInterval.",
)  # fmt: skip
@click.option(
    "--bandwidth", type=size, default="100MiB", show_default=True, metavar="SIZE",
    help="Bytes a second to and from the store.",
)  # fmt: skip
@click.option(
    "--latency", type=click.FloatRange(min=0), default=20, show_default=True, metavar="MS",
    help="Milliseconds until a request is answered.",
)  # fmt: skip
@click.option("--price-writes", type=_PRICE, default=0.0, help="A thousand PUTs and listings.")
@click.option("--price-reads", type=_PRICE, default=0.0, help="A thousand GETs.")
@click.option("--price-storage", type=_PRICE, default=0.0, help="A GB for a month.")
def command(store: str | None, **given: Any) -> None:
    """Tell what state costs in bytes, requests and seconds.

    With STORE, by what its newest checkpoints have stored. Without it, by the figures that are
    given: --state, --changed and --every.
    """
    prices = Prices(given["price_writes"], given["price_reads"], given["price_storage"])
    if store is not None:
        if any(given[name] is not None for name in ("state", "changed", "every")):
            raise click.UsageError("STORE tells the state itself: leave out --state and the like")
        with opened_store(store) as opened:
            document = _observed(opened.url, observed_cost(opened), prices, given)
        print_answer(document, _show)
        return
    if any(given[name] is None for name in ("state", "changed", "every")):
        raise click.UsageError("Give STORE, or --state, --changed and --every.")
    if not given["every"] or not given["bandwidth"] or not given["background_rate"]:
        raise click.UsageError("--every, --bandwidth and --background-rate must be more than 0.")
    use = _use(given)
    print_answer(_estimated(use, estimate(use), prices), _show)


def _use(given: dict[str, Any]) -> StateUse:
    changed, state = given["changed"], given["state"]
    return StateUse(
        state_bytes=state,
        changed_bytes=round(changed * state) if isinstance(changed, float) else changed,
        epochs_per_hour=3600 / given["every"],
        stores=given["partitions"],
        provider=given["provider"],
        keep=given["keep"],
        full_every=given["full_every"],
        background_rate=given["background_rate"],
        deltas_for_snapshot=given["min_deltas"],
        maintenance_seconds=given["maintenance"],
        bandwidth=given["bandwidth"],
        latency=given["latency"] / 1000,
    )


def _estimated(use: StateUse, found: Estimate, prices: Prices) -> Document:
    hour = found.hourly(use.epochs_per_hour)
    return {
        "from": "figures",
        "given": asdict(use),
        "epoch": asdict(found.epoch),
        "largest_epoch": None,
        "snapshot": None if found.snapshot is None else asdict(found.snapshot),
        "snapshot_every": found.snapshot_every,
        "prune": asdict(found.prune),
        "restore": asdict(found.restore),
        **_month(hour, found.stored_bytes, use.epochs_per_hour, prices),
        "notes": found.notes,
    }


def _observed(url: str, found: ObservedCost, prices: Prices, given: dict[str, Any]) -> Document:
    rate = found.epochs_per_hour
    hour = found.hourly()
    restore = asdict(found.restore)
    reading = found.restore.bytes / given["bandwidth"] if given["bandwidth"] else 0.0
    restore["seconds"] = reading + found.restore.reads * given["latency"] / 1000 / 8
    notes = []
    if found.epoch is None:
        notes.append("There are too few checkpoints to tell what an epoch costs.")
    return {
        "from": url,
        "checkpoints": len(found.epochs) + 1,
        "epoch": None if found.epoch is None else asdict(found.epoch),
        "largest_epoch": None if found.largest is None else asdict(found.largest),
        "snapshot": None,
        "snapshot_every": None,
        "prune": asdict(found.prune),
        "restore": restore,
        "state_bytes": found.state_bytes,
        "state_partitions": found.state_partitions,
        **_month(hour, found.stored_bytes, rate, prices),
        "notes": notes,
    }


def _month(hour: Cost | None, stored: int, rate: float | None, prices: Prices) -> Document:
    priced = hour is not None and prices != Prices()
    return {
        "epochs_per_hour": rate,
        "hour": None if hour is None else asdict(hour),
        "stored_bytes": stored,
        "month": None
        if hour is None
        else {
            "writes": hour.writes * HOURS_A_MONTH,
            "reads": hour.reads * HOURS_A_MONTH,
            "price": round(prices.of_month(hour, stored), 2) if priced else None,
        },
    }


def _show(document: Document) -> None:
    every = document["snapshot_every"]
    rows = [
        ("an epoch adds", document["epoch"], True),
        ("the largest one", document["largest_epoch"], True),
        (f"every {plural(every or 0, 'epoch')}", document["snapshot"], True),
        ("an hour", document["hour"], False),
        ("a restore", document["restore"], True),
    ]
    print_rows(
        ("WHAT", "BYTES", "WRITES", "READS", "SECONDS"),
        [_row(what, cost, timed) for what, cost, timed in rows if cost is not None],
        right="BYTES WRITES READS SECONDS",
    )
    print_facts(_facts(document))
    for note in document["notes"]:
        print_paragraph(note)
    if document["snapshot"] is not None:
        print_hint("How it is made up: docs/state-cost.md. By a store: seamark estimate STORE")


def _row(what: str, cost: Document, is_timed: bool) -> list[Cell]:
    seconds = seconds_text(cost["seconds"]) if is_timed else "–"
    numbers = (grouped(cost["writes"]), grouped(cost["reads"]))
    return [what, size_text(cost["bytes"]), *numbers, seconds]


def _facts(document: Document) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = []
    if document["snapshot"] is not None:
        facts.append(("a snapshot", "is stored between epochs; no epoch waits for it"))
    facts.append(("stored", f"{size_text(document['stored_bytes'])} in all"))
    month = document["month"]
    if month is not None:
        requests = f"{grouped(month['writes'])} writes, {grouped(month['reads'])} reads"
        price = "" if month["price"] is None else f", {month['price']:.2f} with storage"
        facts.append(("a month", requests + price))
    return facts
