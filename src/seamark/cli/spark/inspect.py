"""``seamark spark inspect``: what a checkpoint directory holds, and what is wrong with it.

``--json`` prints one object::

    path, query_id, spark, offset_log, checkpoint_format, watermark_ms, settings, files, bytes
    batches       {first, last, kept} of the offset log
    committed     the newest batch that was finished, or null
    planned       the batch that was planned and not finished, or null
    sources       [{name, kind, folder, offset}]
    operators     [{number, name, partitions, stores, provider, version, complete, files, bytes,
                  partition_bytes}]; complete is null when a running query has gone on meanwhile
    restorable    [batches that one can roll back to]
    would_do      {action: start | next | replay | fail, batch, text}
    findings      [{code, severity: damage | warning | info, path, message, advice}]
    unread_files  state files that were not read; with --read-data only when all of them have far
                  more rows than files of that size do
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
from rich.text import Text

from seamark._common.text import size_text, time_text
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import Cell, plural, print_facts, print_paragraph
from seamark.cli.output import (
    STYLES,
    print_answer,
    print_hint,
    progress_bar,
    without_secrets,
)
from seamark.cli.spark.arguments import opened_directory
from seamark.errors import DamageError
from seamark.native.inspect.inspection import Inspection, inspect
from seamark.native.inspect.operators import OperatorSummary
from seamark.reports.directory_document import directory_document

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
@click.option("--read-data", is_flag=True, help="Read all state files, not only the small ones.")
def command(path: str, read_data: bool) -> None:
    """Show what a directory holds and what is wrong with it.

    Lists batches, sources and state, and says what a restart of the query would do. Nothing is
    changed, and the query may be running. The exit code is 3 when something is damaged; warnings
    alone leave it at 0.
    """
    bar = progress_bar("reading", None, of_bytes=True)
    with opened_directory(path) as directory, bar as advance:
        inspection = inspect(directory, read_data=read_data, advance=advance)
    print_answer(directory_document(inspection), lambda _: _show(inspection, path, read_data))
    if inspection.is_damaged:
        raise click.exceptions.Exit(DamageError.exit_code)


def _show(inspection: Inspection, path: str, read_data: bool) -> None:
    print_paragraph(" · ".join(_head(inspection)))
    print_facts(_facts(inspection, read_data))
    if inspection.is_damaged:
        print_hint("Keep a copy of the directory before anything is changed in it.")
    elif not read_data and inspection.operators:
        print_hint(f"Is every byte right?  seamark spark inspect {shlex.quote(path)} --read-data")


def _head(inspection: Inspection) -> Iterator[str]:
    yield "Structured Streaming checkpoint"
    yield f"query {inspection.query_id or 'unknown'}"
    if inspection.spark is not None:
        yield f"Spark {inspection.spark}"
    if inspection.offset_log is not None:
        yield f"offset log {inspection.offset_log}"
    yield f"checkpoint format {inspection.checkpoint_format}"


def _facts(inspection: Inspection, read_data: bool) -> Iterator[tuple[str, Cell]]:
    yield "batches", _batches(inspection)
    if inspection.watermark_ms:
        yield "watermark", time_text(inspection.watermark_ms)
    for number, source in enumerate(inspection.sources):
        offset = without_secrets(source.offset)
        at = "  ".join(f"{name} {value}" for name, value in offset.items())
        place = f" files of {source.folder}" if source.folder else ""
        yield "sources" * (not number), f"{source.name}{place}  {at or 'at its beginning'}"
    for number, operator in enumerate(inspection.operators):
        for line, text in enumerate(_operator(operator)):
            yield "state" * (not number and not line), text
    pinned = [
        f"{label} {inspection.settings[name].rsplit('.', 1)[-1]}"
        for label, name in _PINNED
        if name in inspection.settings
    ]
    if pinned:
        yield "pinned", ", ".join(pinned)
    yield "size", f"{size_text(inspection.size)} in {inspection.files} files"
    yield "roll back", _way_back(inspection)
    yield "would do", inspection.would_do.text
    yield from _findings(inspection)
    if inspection.unread:
        why = "they have far more rows than files of that size do"
        how = f": {why}" if read_data else "; --read-data reads them too"
        yield "not read", f"{inspection.unread} state files{how}"


def _batches(inspection: Inspection) -> str:
    if not inspection.offsets:
        text = "none planned"
    elif inspection.offsets[0] == 0:
        text = f"0 … {inspection.offsets[-1]}"
    else:
        text = (
            f"0 … {inspection.offsets[-1]} (kept {inspection.offsets[0]}–{inspection.offsets[-1]})"
        )
    done = inspection.committed
    text += ", none committed" if done is None else f", committed to {done}"
    if inspection.planned is not None:
        text += f", batch {inspection.planned} planned, not finished"
    return text


def _operator(operator: OperatorSummary) -> Iterator[str]:
    count = plural(operator.partitions, "partition")
    stores = f" × {len(operator.stores)} stores" if len(operator.stores) > 1 else ""
    version = _standing(operator)
    yield (
        f"{operator.number} {operator.name}  {count}{stores} · {operator.provider} · {version} · "
        f"{size_text(operator.size)}, {operator.files} files"
    )
    skew = operator.skew
    if skew is not None and skew >= _SKEWED:
        sizes = operator.partition_sizes
        largest = sorted(sizes, key=lambda number: -sizes[number])[:_LARGEST]
        sizes_text = ", ".join(f"{number}: {size_text(sizes[number])}" for number in largest)
        yield f"  skewed: the largest partition has {skew:.1f} × the average ({sizes_text})"


def _standing(operator: OperatorSummary) -> str:
    if not operator.version:
        return "no state yet"
    if operator.is_complete is None:
        return f"version {operator.version}, and the query has gone on"
    return f"version {operator.version} {'complete' if operator.is_complete else 'INCOMPLETE'}"


def _way_back(inspection: Inspection) -> str:
    batches = inspection.restorable
    if not batches:
        return "to no batch: none is complete"
    if len(batches) == batches[-1] - batches[0] + 1:
        which = f"{batches[0]}" if len(batches) == 1 else f"{batches[0]} to {batches[-1]}"
    else:
        which = ", ".join(map(str, batches[-_LARGEST:]))
        which += f" and {len(batches) - _LARGEST} earlier ones" * (len(batches) > _LARGEST)
    return f"possible to batch {which}"


def _findings(inspection: Inspection) -> Iterator[tuple[str, Cell]]:
    if not inspection.findings:
        yield "findings", Text("none", STYLES["ok"])
    for number, finding in enumerate(inspection.findings[:_MANY]):
        style = {"damage": STYLES["damaged"], "warning": STYLES["warning"]}.get(finding.severity)
        text = f"{finding.severity}: {finding.message} [{finding.code}]"
        yield "findings" * (not number), Text(text, style or "")
        if finding.path not in finding.message:
            yield "", f"  in {finding.path}"
        if finding.advice:
            yield "", f"  {finding.advice}"
    if len(inspection.findings) > _MANY:
        yield "", f"and {len(inspection.findings) - _MANY} more; --json has all of them"
