"""What ``seamark spark rollback`` says before and after.

Tests: ``tests/cli/test_spark_rollback.py``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from seamark._common.text import size_text, time_text
from seamark.cli.layout import print_facts, print_paragraph, print_rows
from seamark.cli.output import Document, print_hint
from seamark.cli.spark.sink_decision import DECISION
from seamark.cli.spark.snapshot import snapshot_line
from seamark.native.rewind.files import KINDS, Move
from seamark.native.rewind.rewind import RewindPlan

_KINDS: Final = {
    "state": ("state", "is newer than the batch; Spark would load it"),
    "operators": ("operators", "was noted by later starts"),
    "commits": ("commits", "of later batches"),
    "offsets": ("offsets", "of later batches"),
    "sources": ("source logs", "is not read by the batch, or is replaced"),
    "_spark_metadata": ("sink log", "of later batches; data files stay"),
}


def document_of(
    plan: RewindPlan, path: str, query_id: str | None, file_sink: str | None
) -> Document:
    """What a plan means, as the documented JSON."""
    sink = plan.sink
    moved = [*plan.moves, *plan.spare, *(sink.moves if sink is not None else ())]
    decided = query_id is not None or file_sink is not None
    return {
        "path": path,
        "needed": plan.is_needed,
        "interrupted": plan.was_begun,
        "from_batch": plan.from_batch,
        "to_batch": plan.to_batch,
        "checkpoint": plan.barrier.checkpoint_id,
        "watermark_ms": plan.at.next_watermark or None,
        "moves": _by_kind(moved),
        "writes": [
            *plan.writes,
            *(f"_spark_metadata/{n}" for n in (sink.rewind.write if sink else ())),
        ],
        "query_id": query_id or ("keep" if file_sink is not None else None),
        "file_sink": file_sink,
        "unlisted": list(sink.rewind.unlisted) if sink is not None else [],
        "decision": None if decided or not plan.is_needed else DECISION,
        "snapshot": None,
        "snapshot_problem": None,
        "store": None,
        "aside": None,
        "done": False,
    }


def _by_kind(moved: Iterable[Move]) -> list[Document]:
    sizes: dict[str, list[int]] = {}
    for move in moved:
        sizes.setdefault(move.kind, []).append(move.size)
    return [
        {"kind": kind, "files": len(sizes[kind]), "bytes": sum(sizes[kind])}
        for kind in KINDS
        if kind in sizes
    ]


def show(document: Document) -> None:
    """The same for people."""
    to_batch = document["to_batch"]
    if not document["needed"]:
        print_paragraph(f"{document['path']} ends with batch {to_batch}: there is nothing to do.")
        return
    newest = document["from_batch"]
    print_facts(_facts(document, newest), indent=0)
    if document["moves"]:
        print_rows(
            ["MOVED AWAY" if document["done"] else "TO MOVE", "FILES", "SIZE", "BECAUSE IT"],
            [
                (name, str(moved["files"]), size_text(moved["bytes"]), why)
                for moved in document["moves"]
                for name, why in [_KINDS[moved["kind"]]]
            ],
            right="FILES SIZE",
        )
    if document["unlisted"]:
        print_paragraph(
            f"{len(document['unlisted'])} data files of the sink are no longer in its log. They "
            "stay where they are: programs that read the folder without its log still see them."
        )
    if document["done"]:
        _show_done(document)
        return
    if document["decision"]:
        print_paragraph(document["decision"])
    print_paragraph("Nothing was changed.")
    print_hint("To do it, stop the query and add --yes.")


def _facts(document: Document, newest: int | None) -> list[tuple[str, str]]:
    to_batch = document["to_batch"]
    begun = ", begun before and not finished" if document["interrupted"] else ""
    origin = document["checkpoint"]
    facts = [
        ("directory", document["path"]),
        ("rollback", f"from batch {'none' if newest is None else newest} to {to_batch}{begun}"),
    ]
    if origin is not None:
        facts.append(("taken from", f"checkpoint {origin} of the store, SHA-256 verified"))
    if document["watermark_ms"] is not None:
        facts.append(("watermark", f"{time_text(document['watermark_ms'])} in the next batch"))
    facts.append(("rewritten", _named(document["writes"])))
    kept = {"new": "a new one", "keep": "kept", None: "to be decided"}
    facts.append(("query id", kept[document["query_id"]]))
    return facts


def _named(paths: list[str]) -> str:
    if not paths:
        return "nothing"
    shown = ", ".join(paths[:4])
    return shown if len(paths) <= 4 else f"{shown} and {len(paths) - 4} more"


def _show_done(document: Document) -> None:
    to_batch = document["to_batch"]
    taken = document["snapshot"]
    if taken is not None:
        print_facts([("snapshot", snapshot_line(taken))], indent=0)
    elif document["snapshot_problem"]:
        print_paragraph(
            "No snapshot was taken, because the newest batch is not whole: "
            f"{document['snapshot_problem']}."
        )
    print_paragraph(
        f"Done. A restart plans batch {to_batch + 1} again, from where batch {to_batch} ended. No "
        "row is lost as long as the source still has it."
    )
    print_hint(f"Moved files: {document['aside']}")
    if taken is not None:
        undo = shlex.join(["seamark", "spark", "restore", document["store"], str(taken["id"])])
        print_hint(f"To undo it: {undo} NEW_PATH")
