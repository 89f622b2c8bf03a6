"""``seamark spark inspect``: what a checkpoint directory holds, and what is wrong with it.

``--json`` prints one object::

    path, query_id, spark, offset_log, checkpoint_format, watermark_ms, settings, files, bytes
    batches       {first, last, kept} of the offset log
    committed     the newest batch that was finished, or null
    planned       the batch that was planned and not finished, or null
    sources       [{name, kind, folder, offset}]
    operators     [{number, name, partitions, stores, provider, version, complete, files, bytes,
                  partition_bytes}]
    restorable    [batches that one can roll back to]
    would_do      {action: start | next | replay | fail, batch, text}
    findings      [{code, severity: damage | warning | info, path, message, advice}]
    unread_files  state files that were not read, without --read-data
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
from rich.text import Text

from seamark._common.text import size_text, time_text
from seamark.cli.common_options import Command, settings
from seamark.cli.layout import Cell, print_facts, print_paragraph
from seamark.cli.output import (
    STYLES,
    Document,
    print_hint,
    print_json,
    progress_bar,
    without_secrets,
)
from seamark.cli.parameters import PLACE
from seamark.cli.spark.directory_argument import opened_directory
from seamark.native.inspect.inspection import Inspection, inspect
from seamark.native.inspect.sizes import OperatorSeen

_DAMAGED = 3
_LARGEST = 5
_SKEWED = 2.0
_MANY = 20
_PINNED = (
    ("provider", "spark.sql.streaming.stateStore.providerClass"),
    ("shuffle partitions", "spark.sql.shuffle.partitions"),
    ("codec", "spark.sql.streaming.stateStore.compression.codec"),
    ("watermark policy", "spark.sql.streaming.multipleWatermarkPolicy"),
)


@click.command("inspect", cls=Command)
@click.argument("path", type=PLACE)
@click.option("--read-data", is_flag=True, help="Read all state files and not only small ones.")
@click.pass_context
def command(context: click.Context, path: str, read_data: bool) -> None:
    """Show what a directory holds and what is wrong.

    Batches, sources, state, and what a restart of the query would do. Nothing is changed, and the
    query may be running. Exit code 3 when something is damaged; warnings alone are 0.
    """
    with opened_directory(path) as directory:
        with progress_bar("reading", None, of_bytes=True) as advance:
            found = inspect(directory, read_data=read_data, advance=advance)
        if settings().as_json:
            print_json(inspection_document(found))
        else:
            show(found, read_data)
            _next(found, path, read_data)
    if found.is_damaged:
        context.exit(_DAMAGED)


def inspection_document(found: Inspection) -> Document:
    """What ``--json`` prints."""
    return {
        "path": found.url,
        "query_id": found.query_id,
        "spark": found.spark,
        "offset_log": found.offset_log,
        "checkpoint_format": found.checkpoint_format,
        "batches": {
            "first": found.offsets[0] if found.offsets else None,
            "last": found.offsets[-1] if found.offsets else None,
            "kept": len(found.offsets),
        },
        "committed": found.committed,
        "planned": found.planned,
        "watermark_ms": found.watermark_ms,
        "sources": [
            {"name": s.name, "kind": s.kind or None, "folder": s.folder, "offset": s.offset}
            for s in found.sources
        ],
        "operators": [_operator_document(operator) for operator in found.operators],
        "settings": found.settings,
        "files": found.files,
        "bytes": found.size,
        "restorable": found.restorable,
        "would_do": {
            "action": str(found.would_do.action),
            "batch": found.would_do.batch,
            "text": found.would_do.text,
        },
        "findings": [
            {
                "code": str(finding.code),
                "severity": str(finding.severity),
                "path": finding.path,
                "message": finding.message,
                "advice": finding.advice,
            }
            for finding in found.findings
        ],
        "unread_files": found.unread,
    }


def _operator_document(operator: OperatorSeen) -> Document:
    return {
        "number": operator.number,
        "name": operator.name,
        "partitions": operator.partitions,
        "stores": operator.stores,
        "provider": operator.provider,
        "version": operator.version,
        "complete": operator.is_complete,
        "files": operator.files,
        "bytes": operator.size,
        "partition_bytes": {str(n): size for n, size in operator.partition_sizes.items()},
    }


def show(found: Inspection, read_data: bool) -> None:
    """Lay it out for a person."""
    print_paragraph(" · ".join(_head(found)))
    print_facts(_facts(found, read_data))


def _head(found: Inspection) -> Iterator[str]:
    yield "Structured Streaming checkpoint"
    yield f"query {found.query_id or 'unknown'}"
    if found.spark is not None:
        yield f"Spark {found.spark}"
    if found.offset_log is not None:
        yield f"offset log {found.offset_log}"
    yield f"checkpoint format {found.checkpoint_format}"


def _facts(found: Inspection, read_data: bool) -> Iterator[tuple[str, Cell]]:
    yield "batches", _batches(found)
    if found.watermark_ms:
        yield "watermark", time_text(found.watermark_ms)
    for number, source in enumerate(found.sources):
        offset = without_secrets(source.offset)
        at = "  ".join(f"{name} {value}" for name, value in offset.items())
        place = f" files of {source.folder}" if source.folder else ""
        yield "sources" * (not number), f"{source.name}{place}  {at or 'at its beginning'}"
    for number, operator in enumerate(found.operators):
        for line, text in enumerate(_operator(operator)):
            yield "state" * (not number and not line), text
    pinned = [
        f"{label} {found.settings[name].rsplit('.', 1)[-1]}"
        for label, name in _PINNED
        if name in found.settings
    ]
    if pinned:
        yield "pinned", ", ".join(pinned)
    yield "size", f"{size_text(found.size)} in {found.files} files"
    yield "roll back", _way_back(found)
    yield "would do", found.would_do.text
    yield from _findings(found)
    if found.unread and not read_data:
        yield "not read", f"{found.unread} state files; --read-data reads them too"


def _batches(found: Inspection) -> str:
    if not found.offsets:
        told = "none planned"
    elif found.offsets[0] == 0:
        told = f"0 … {found.offsets[-1]}"
    else:
        told = f"0 … {found.offsets[-1]} (kept {found.offsets[0]}–{found.offsets[-1]})"
    told += ", none committed" if found.committed is None else f", committed to {found.committed}"
    return told if found.planned is None else f"{told}, batch {found.planned} planned, not finished"


def _operator(operator: OperatorSeen) -> Iterator[str]:
    count = "1 partition" if operator.partitions == 1 else f"{operator.partitions} partitions"
    stores = f" × {len(operator.stores)} stores" if len(operator.stores) > 1 else ""
    standing = "complete" if operator.is_complete else "INCOMPLETE"
    version = f"version {operator.version} {standing}" if operator.version else "no state yet"
    yield (
        f"{operator.number} {operator.name}  {count}{stores} · {operator.provider} · {version} · "
        f"{size_text(operator.size)}, {operator.files} files"
    )
    skew = operator.skew
    if skew is not None and skew >= _SKEWED:
        sizes = operator.partition_sizes
        largest = sorted(sizes, key=lambda number: -sizes[number])[:_LARGEST]
        told = ", ".join(f"{number}: {size_text(sizes[number])}" for number in largest)
        yield f"  skewed: the largest partition has {skew:.1f} × the average ({told})"


def _way_back(found: Inspection) -> str:
    batches = found.restorable
    if not batches:
        return "to no batch: none is there as a whole"
    if len(batches) == batches[-1] - batches[0] + 1:
        which = f"{batches[0]}" if len(batches) == 1 else f"{batches[0]} to {batches[-1]}"
    else:
        which = ", ".join(map(str, batches[-_LARGEST:]))
        which += f" and {len(batches) - _LARGEST} earlier ones" * (len(batches) > _LARGEST)
    return f"possible to batch {which}"


def _findings(found: Inspection) -> Iterator[tuple[str, Cell]]:
    if not found.findings:
        yield "findings", Text("none", STYLES["ok"])
    for number, finding in enumerate(found.findings[:_MANY]):
        style = {"damage": STYLES["damaged"], "warning": STYLES["warning"]}.get(finding.severity)
        text = f"{finding.severity}: {finding.message} [{finding.code}]"
        yield "findings" * (not number), Text(text, style or "")
        if finding.path not in finding.message:
            yield "", f"  in {finding.path}"
        if finding.advice:
            yield "", f"  {finding.advice}"
    if len(found.findings) > _MANY:
        yield "", f"and {len(found.findings) - _MANY} more; --json has all of them"


def _next(found: Inspection, path: str, read_data: bool) -> None:
    if found.is_damaged:
        print_hint("Keep a copy of the directory before anything is changed in it.")
    elif not read_data and found.operators:
        print_hint(f"Is every byte right?  seamark spark inspect {shlex.quote(path)} --read-data")
