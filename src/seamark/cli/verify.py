"""``seamark verify``: what is stored is what was written, or the difference is named."""

from __future__ import annotations

import random
import re
import shlex
from collections import Counter
from functools import partial

import click

from seamark._common.text import size_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph, print_rows, print_warnings
from seamark.cli.output import Document, print_answer, print_hint, progress_bar, styled
from seamark.cli.store_argument import opened_store
from seamark.reports.verification import check_named, verification_document
from seamark.store.consistent_read import until_settled

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= 100:
        raise click.BadParameter(f"{text!r} is not a share like 10%")
    return float(match[1]) / 100


@click.command("verify", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="[ID]", required=False)
@click.option("--read-data", is_flag=True, help="Also read and check every byte of state.")
@click.option(
    "--read-data-subset", type=_share, metavar="SHARE", help="The same for a share of it, like 10%."
)
@click.option("--seed", type=int, help="Selects the share; random by default.")
def command(
    store: str,
    checkpoint: str | None,
    read_data: bool,
    read_data_subset: float | None,
    seed: int | None,
) -> None:
    """Check what is stored, down to every byte if you ask.

    Reads and checks all manifests, and checks that their parents are there and their state has its
    full size. With ID, checks only that checkpoint and those it builds on. Safe on a store in use.
    The exit code is 3 when something is damaged or owner.json is older than a checkpoint, and 7
    when something could not be read; warnings alone leave it at 0.
    """
    if read_data and read_data_subset is not None:
        raise click.UsageError("--read-data and --read-data-subset cannot be used together")
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    share = 1.0 if read_data else read_data_subset or 0.0
    with opened_store(store) as opened:
        checks = until_settled(
            partial(check_named, opened, checkpoint, share, seed, progress_bar), opened.url
        )
    document = verification_document(opened.url, checks, share)
    document["seed"] = seed if read_data_subset is not None else None
    print_answer(document, lambda clean: _show(clean, store))


def _show(document: Document, url: str) -> None:
    rows = document["checkpoints"]
    if not rows:
        print_paragraph("No checkpoints: nothing to verify.")
        return
    problems = []
    for row in rows:
        problems += [(row["id"], "damaged", text) for text in row["damage"]]
        if row["error"]:
            problems.append((row["id"], "unreadable", row["error"]))
        if row["status"] == "gone":
            why = "; ".join(row["warnings"]) or "pruned meanwhile"
            problems.append((row["id"], "gone", why))
    warned = Counter(text for row in rows for text in row["warnings"] if row["status"] != "gone")
    if problems:
        print_rows(
            ("ID", "STATUS", "FINDING"),
            [[str(number), styled(word), finding] for number, word, finding in problems],
            right="ID",
        )
    print_warnings(
        text + (f" ({times} checkpoints)" if times > 1 else "") for text, times in warned.items()
    )
    counts = [f"{document[word]} {word}" for word in ("ok", "damaged", "unreadable", "gone")]
    print_paragraph(
        f"{len(rows)} checkpoints: "
        + ", ".join(text for text in counts if not text.startswith("0 "))
        + f" · {_depth(document)}"
    )
    if document["owner_problem"]:
        print_hint(document["owner_problem"])
    elif document["damaged"]:
        print_hint(f"Which one would a start choose?  seamark recover {shlex.quote(url)} --explain")
    elif document["unreadable"]:
        print_hint(
            f"That proves nothing about them. Try again, or: seamark doctor {shlex.quote(url)}"
        )
    elif not document["data_read"]:
        print_hint(f"To read every byte too:  seamark verify {shlex.quote(url)} --read-data")


def _depth(document: Document) -> str:
    if not document["data_read"]:
        return "manifests read, sizes of state compared"
    size = size_text(document["bytes_read"])
    if unproven := document["without_checksum"]:
        whose = "its" if unproven == 1 else "their"
        return f"{size} of state verified, {unproven} without a checksum of {whose} state"
    if document["read_data"] >= 1 and (document["unreadable"] or document["damaged"]):
        return f"state of {document['ok']} read ({size})"
    if document["read_data"] >= 1:
        return f"all bytes read ({size} of state)"
    return (
        f"state of {document['data_read']} read ({size}, asked for "
        f"{document['read_data']:.0%}, seed {document['seed']})"
    )
