"""``seamark compare``: where the outputs of two stores differ, by epoch.

Tests: ``tests/cli/test_fork.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from seamark._common.text import grouped
from seamark.cli.commands import PLACE, Command, named_values
from seamark.cli.copy import open_target
from seamark.cli.layout import Cell, plural, print_paragraph, print_rows, print_warnings
from seamark.cli.output import Document, print_answer, styled
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError
from seamark.pipeline.comparison import (
    ComparedStore,
    Comparison,
    Inputs,
    OutputComparison,
    Verdict,
    compare,
)
from seamark.reports.places import require_path
from seamark.spark.row_digests import RowDigest
from seamark.store import CheckpointStore
from seamark.store.inspection import scan

DIFFERENT = 1
"""The exit code when an output differs, as that of diff."""
_RANGE = re.compile(r"([0-9]{1,18})?(?:\.\.)?([0-9]{1,18})?")


def _epochs(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int | None]:
    match = _RANGE.fullmatch(text or "..")
    if match is None or (text is not None and not (match[1] or match[2])):
        raise click.BadParameter("give epochs as A..B, A.., ..B or A")
    first = int(match[1] or 0)
    last = int(match[2]) if match[2] else None
    if ".." not in (text or ".."):
        last = first = int(text or 0)
    return first, last


@click.command("compare", cls=Command)
@click.argument("a", type=PLACE)
@click.argument("b", type=PLACE)
@click.option("--epochs", metavar="A..B", callback=_epochs, help="Only these epochs.")
@click.option(
    "--to-storage-option",
    "to_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="Like --storage-option, for B. Default: the same options as for A.",
)
def command(a: str, b: str, epochs: tuple[int, int | None], to_options: dict[str, str]) -> None:
    """Show where the outputs of two stores differ.

    A and B are stores of pipelines that have outputs of the same names, such as a fork and its
    origin. Compares rows and digests of every epoch that both have run on the same rows. No sink is
    read, and nothing is changed. The exit code is 1 when an output differs.
    """
    require_path(b, "store")
    with opened_store(a) as one, open_target(b, to_options) as other:
        found = compare(_compared(one), _compared(other), *epochs)
        document = _document(one, other, found)
    print_answer(document, _show)
    if found.is_different:
        raise click.exceptions.Exit(DIFFERENT)


def _compared(store: CheckpointStore) -> ComparedStore:
    """All checkpoints of a store that count."""
    found = [
        scanned.manifest
        for scanned in scan(store)
        if scanned.manifest is not None and scanned.damage is None and not scanned.superseded
    ]
    if not found:
        raise CheckpointNotFoundError("the store has no checkpoint to compare", where=store.url)
    return ComparedStore(store.url, tuple(found))


def _document(one: CheckpointStore, other: CheckpointStore, found: Comparison) -> Document:
    cumulated = found.cumulated
    return {
        "a": one.url,
        "b": other.url,
        "related": found.is_related,
        "since": found.since,
        "different": found.is_different,
        "sinks": list(found.sinks),
        "without_digests": list(found.undigested),
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "epochs": [
            {
                "epoch": each.epoch,
                "inputs": each.inputs.value,
                "watermarks": list(each.watermarks),
                "outputs": _outputs(each.outputs),
                "without_digests": each.undigested,
            }
            for each in found.epochs
        ],
        "cumulated": None
        if cumulated is None
        else {
            "a_epoch": cumulated.a_epoch,
            "b_epoch": cumulated.b_epoch,
            "outputs": _outputs(cumulated.outputs),
        },
        "notes": list(found.notes),
    }


def _outputs(outputs: Iterable[OutputComparison]) -> dict[str, Document]:
    return {
        each.sink: {"a": _rows(each.a), "b": _rows(each.b), "verdict": each.verdict.value}
        for each in outputs
    }


def _rows(found: RowDigest | None) -> Document | None:
    return None if found is None else {"rows": found.rows, "digest": found.digest}


def _show(document: Document) -> None:
    if document["related"]:
        print_paragraph(f"Common history up to epoch {document['since']}.")
    else:
        print_paragraph("Nothing says that these stores have a common history.")
    same = [each for each in document["epochs"] if each["inputs"] == Inputs.SAME.value]
    differing = [(str(each["epoch"]), *row) for each in same for row in _different(each["outputs"])]
    if differing:
        _table("EPOCH", differing)
    if document["epochs"]:
        bad = len({row[0] for row in differing})
        unlike = len(document["epochs"]) - len(same)
        unknown = sum(map(_is_unknown, same))
        counts = [f"{plural(len(same), 'epoch')} on the same rows: {bad} differ"]
        counts += [f"{unknown} without digests"] if unknown else []
        counts += [f"{unlike} on other rows"] if unlike else []
        print_paragraph(" · ".join(counts))
    if (cumulated := document["cumulated"]) is not None:
        print_paragraph(
            f"Up to the same position (epoch {cumulated['a_epoch']} of A, "
            f"{cumulated['b_epoch']} of B):",
            gap=True,
        )
        rows = [("all", *_row(name, each)) for name, each in cumulated["outputs"].items()]
        _table("EPOCHS", rows)
    only = [f"only A has the output {name}" for name in document["only_a"]]
    only += [f"only B has the output {name}" for name in document["only_b"]]
    print_warnings([*document["notes"], *only])


def _is_unknown(epoch: Document) -> bool:
    verdicts = (each["verdict"] for each in epoch["outputs"].values())
    return epoch["without_digests"] > 0 or Verdict.UNKNOWN.value in verdicts


def _different(outputs: dict[str, Document]) -> list[tuple[str, str, str, str]]:
    return [
        _row(name, each)
        for name, each in outputs.items()
        if each["verdict"] == Verdict.DIFFERS.value
    ]


def _row(name: str, output: Document) -> tuple[str, str, str, str]:
    a, b = (None if each is None else int(each["rows"]) for each in (output["a"], output["b"]))
    result = str(output["verdict"])
    if a is not None and b is not None and result == Verdict.DIFFERS.value:
        result = "other rows" if a == b else f"{grouped(abs(b - a))} {'more' if b > a else 'fewer'}"
    return name, _count(a), _count(b), result


def _count(rows: int | None) -> str:
    return "–" if rows is None else grouped(rows)


def _table(first: str, rows: list[tuple[str, str, str, str, str]]) -> None:
    shown: list[list[Cell]] = [[*row[:4], styled(row[4])] for row in rows]
    print_rows((first, "OUTPUT", "A", "B", "B HAS"), shown, right=f"{first} A B")
