"""Whether the sources still have what comes next: the answer of ``seamark sources --check``.

Tests: ``tests/cli/test_source_check.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from seamark._common.text import elapsed_text, grouped
from seamark.cli.layout import Cell, print_paragraph, print_rows
from seamark.cli.output import Document, print_hint, styled
from seamark.errors import PositionUnavailable, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.spark.kafka.positions import (
    LostPosition,
    Offsets,
    PositionStatus,
    Topics,
    lost_positions,
    parsed,
    statuses,
)
from seamark.spark.kafka.recorded_positions import lines_of, lowest_position

Look = Callable[[str, Offsets], Topics]
"""Asks Kafka about the topics of a source; with its name and its positions."""


LookAtTable = Callable[[str], Document | None]
"""Asks a table that is a source, by its name; None for a source that is no table."""


def checked_sources(
    manifest: CheckpointManifest, look: Look, look_at_table: LookAtTable = lambda _: None
) -> list[Document]:
    """Each source of a checkpoint with what Kafka, or its table, says about its positions.

    A source that cannot be asked has its error instead; raised when it is that of all.
    """
    documents: list[Document] = []
    errors: list[SeamarkError] = []
    for name, at in sorted(manifest.source_offsets.items()):
        try:
            documents.append(look_at_table(name) or _checked(name, manifest, lines_of(at), look))
        except SeamarkError as error:
            errors.append(error.as_value())
            documents.append(not_checked(name, _reason(error)) | {"exit_code": error.exit_code})
    if errors and not any(document["checked"] for document in documents):
        raise errors[0]
    return documents


def _reason(error: SeamarkError) -> str:
    """An error in one line."""
    where = f" ({error.where})" if error.where else ""
    hint = f". {error.hint}" if error.hint else ""
    return " ".join(f"{error.what}{where}{hint}".split())


def _checked(name: str, manifest: CheckpointManifest, lines: list[str], look: Look) -> Document:
    if (offsets := lowest_position(lines)) is None:
        return not_checked(name)
    topics = look(name, offsets)
    ids = (manifest.source_ids or {}).get(name)
    before = ids if isinstance(ids, dict) else {}
    lost = {
        (one.topic, one.partition): one
        for line in lines
        for one in lost_positions(name, parsed(line) or {}, topics, before)
    }
    now = time.time_ns() // 1_000_000
    return {
        "name": name,
        "checked": True,
        "topics": {
            topic: {
                "id": facts.topic_id,
                "recorded_id": before.get(topic),
                "retention_seconds": _seconds(facts.retention_ms),
                "retention_bytes": facts.retention_bytes,
            }
            for topic, facts in topics.items()
        },
        "partitions": [
            _partition(status, lost.get((status.topic, status.partition)))
            for status in statuses(offsets, topics, now)
        ],
    }


def not_checked(name: str, why: str | None = None) -> Document:
    """A source that nobody was asked about."""
    return {"name": name, "checked": False, "topics": {}, "partitions": [], "note": why}


def _partition(status: PositionStatus, lost: LostPosition | None) -> Document:
    ends = status.ends
    return {
        "topic": status.topic,
        "partition": status.partition,
        "position": status.wanted,
        "earliest": None if ends is None else ends.earliest,
        "latest": None if ends is None else ends.latest,
        "lag": status.lag,
        "age_seconds": _seconds(status.age_ms),
        "retention_left_seconds": _seconds(status.left_ms),
        "status": "ok" if lost is None else "gone",
        "near_retention": lost is None and status.is_near,
        "loss": None if lost is None else lost.loss.value,
        "rows_lost": None if lost is None else lost.rows,
        "note": None if lost is None else str(lost),
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 3)


def check_document(manifest: CheckpointManifest, url: str, sources: list[Document]) -> Document:
    """What ``seamark sources --check --json`` prints."""
    lost = sum(part["status"] == "gone" for source in sources for part in source["partitions"])
    lost += sum(source["table"]["status"] == "gone" for source in sources if "table" in source)
    return {
        "store": url,
        "checkpoint": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "sources": sources,
        "lost": lost,
        "exit_code": PositionUnavailable.exit_code if lost else _exit_code(sources),
    }


def _exit_code(sources: list[Document]) -> int:
    return next((source["exit_code"] for source in sources if "exit_code" in source), 0)


def show_check(document: Document) -> None:
    """Print the table of all positions."""
    partitions = [
        (source["name"], part) for source in document["sources"] for part in source["partitions"]
    ]
    if partitions:
        print_rows(
            ["SOURCE", "PARTITION", "POSITION", "EARLIEST", "LATEST", "LAG", "AGE", "LEFT", ""],
            [_row(name, part) for name, part in partitions],
            right="POSITION EARLIEST LATEST LAG AGE LEFT",
            notes=[part["note"] or "" for _, part in partitions],
        )
    _show_tables([source for source in document["sources"] if "table" in source])
    for source in document["sources"]:
        if not source["checked"]:
            why = source["note"] or "only Kafka, DeltaSource and IcebergSource can be asked"
            print_paragraph(f"source {source['name']} was not checked: {why}")
    if document["lost"]:
        print_hint("Rows that come next are gone, so a start is refused.")
        print_hint("Pipeline(…, reanchor=…) goes on without them and records the gap.")
    elif partitions:
        print_hint(
            f"As checkpoint {document['checkpoint']} has it. LEFT is the time until retention "
            "reaches the position."
        )


def _show_tables(sources: list[Document]) -> None:
    if not sources:
        return
    keys = ("wanted", "oldest", "newest")
    print_rows(
        ["SOURCE", "NEXT", "OLDEST", "NEWEST", ""],
        [
            [name, *(table[key] or "–" for key in keys), styled(table["status"])]
            for name, table in ((source["name"], source["table"]) for source in sources)
        ],
        notes=[source["table"]["note"] or "" for source in sources],
    )


def _row(name: str, part: Mapping[str, object]) -> list[Cell]:
    numbers = (part[key] for key in ("position", "earliest", "latest", "lag"))
    state = "near" if part["near_retention"] else str(part["status"])
    return [
        name,
        f"{part['topic']}-{part['partition']}",
        *("–" if number is None else grouped(int(str(number))) for number in numbers),
        *_times(part),
        styled(state),
    ]


def _times(part: Mapping[str, object]) -> Iterator[str]:
    for key in ("age_seconds", "retention_left_seconds"):
        value = part[key]
        yield elapsed_text(float(value)) if isinstance(value, int | float) else "–"
