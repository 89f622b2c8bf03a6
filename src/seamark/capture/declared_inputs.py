"""What sources are declared to read, held against what a plan or a checkpoint has them read.

A store may come from anybody, and Spark reads whatever a plan names: of a file source whose path
has a pattern it does not ask whether the pattern leads there, and of Kafka it reads any topic.

Tests: ``tests/capture/test_declared_inputs.py``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from seamark._common.json_documents import UNREADABLE, decode_unambiguous
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import NO_OFFSET, Plan, parse_offsets, require_few_lines
from seamark.spark.kafka.positions import Offsets, each_position, parsed
from seamark.spark.kafka.subscriptions import Subscription

_LONGEST_SHOWN: Final = 1000
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_LOG_ENTRY: Final = re.compile(r"sources/([0-9]{1,9})/([0-9]*)(.*)", re.DOTALL)
_VERSION_LINE: Final = re.compile(r"v[0-9]+")
_ODD: Final = re.compile(r"[\x00-\x20\x7f]")
_FILE_OFFSET: Final = re.compile(r'\{"logOffset":(-1|[0-9]{1,18})\}')


class DeclaredInput(NamedTuple):
    """What a source is declared to read."""

    source: str
    folder: str | None = None
    """Of a file source: the URI of the folder that all of its files are below, not encoded."""
    lines: tuple[int, ...] = ()
    """Its lines of the offset log, that of its folder below ``sources/`` first."""
    topics: Subscription | None = None
    """Of a Kafka source: the topics that it reads."""


Inputs = Sequence[DeclaredInput | None]
"""In the order of the folders below ``sources/``; None for what is not known."""


def require_declared(plan: Plan, inputs: Inputs, before: str | None = None) -> None:
    """:class:`RefusedError` when a plan has a source read what it is not declared to read.

    ``before`` is the entry of the offset log that the plan follows. :class:`DamageError` for what
    Spark may read in another way, and for files that only the log in a directory names.
    """
    _require_declared_files(plan, inputs)
    if not any(declared is not None and declared.lines for declared in inputs):
        return
    lines = parse_offsets(plan.offsets).lines
    lines_before = () if before is None else parse_offsets(before).lines
    for number, declared in enumerate(inputs):
        if declared is not None and declared.folder is not None and declared.lines:
            last = file_position(lines, declared)
            first = file_position(lines_before, declared) if lines_before else -1
            _require_whole(plan, number, first, last)
        if declared is not None and declared.topics is not None:
            _require_declared_topics(lines, declared, declared.topics)


def has_read_elsewhere(
    declared: DeclaredInput, lines: Sequence[str], path: str, entry: str | None
) -> bool:
    """Whether a source has read something, and nothing of it is what it is declared to read.

    ``lines`` are those of the offset log. ``entry``, at ``path``, is what the newest batch of the
    source's own log has added: earlier ones may be of another folder, which it has read before.
    """
    if declared.topics is not None:
        offsets = _offsets(lines[declared.lines[0]], declared)
        read = [declared.topics.reads(topic, part) for topic, part, _ in each_position(offsets)]
        return bool(read) and not any(read)
    if declared.folder is None or entry is None or file_position(lines, declared) < 0:
        return False
    folder, named = _place(declared.folder), [*_named_in(path, entry)]
    return bool(named) and not any(_is_below(uri, folder) for uri in named)


def file_position(lines: Sequence[str], declared: DeclaredInput) -> int:
    """How far the log of a file source is read by an entry of the offset log.

    :class:`DamageError` for a line that is not one of a file source.
    """
    at = declared.lines[0]
    line = lines[at] if at < len(lines) else ""
    if line == NO_OFFSET:
        return -1
    match = _FILE_OFFSET.fullmatch(line)
    if match is None:
        raise DamageError(
            f"the offset log has {line[:100]!r} for source {declared.source!r}, which reads files"
        )
    return int(match[1])


def _require_whole(plan: Plan, folder: int, first: int, last: int) -> None:
    """Spark takes an entry that is missing from wherever the log in the directory has it."""
    matches = [_LOG_ENTRY.fullmatch(path) for path in plan.sources]
    numbers = {int(m[2]) for m in matches if m and m[2] and int(m[1]) == folder}
    if sum(first < number <= last for number in numbers) < last - first:
        raise DamageError(
            f"a plan reads entries {first + 1} to {last} of the log sources/{folder}, and holds "
            "not all of them",
            hint="Which files the others name is not known, so nothing is read.",
        )


def _require_declared_topics(
    lines: Sequence[str], declared: DeclaredInput, topics: Subscription
) -> None:
    for line in (lines[at] if at < len(lines) else "" for at in declared.lines):
        for topic, partition, _ in each_position(_offsets(line, declared)):
            if not topics.reads(topic, partition):
                raise RefusedError(
                    f"source {declared.source!r} was planned to read a topic that it is not "
                    "declared to read",
                    where=f"{topic}-{partition} is not in {topics.text}",
                    hint="Spark would read it as far as the servers allow. If you trust the store, "
                    "declare the topics that the epoch was planned with.",
                )


def _offsets(line: str, declared: DeclaredInput) -> Offsets:
    if line in (NO_OFFSET, "{}"):
        return {}
    try:
        decode_unambiguous(line)
        offsets = parsed(line)
    except UNREADABLE:
        offsets = None
    if offsets is None:
        raise DamageError(
            f"the offset log has {line[:100]!r} for source {declared.source!r}, which reads Kafka"
        )
    return offsets


def _require_declared_files(plan: Plan, inputs: Inputs) -> None:
    """:class:`RefusedError` when a plan names a file that its source is not declared to read."""
    for path, entry in plan.sources.items():
        match = _LOG_ENTRY.fullmatch(path)
        number = int(match[1]) if match else len(inputs)
        declared = inputs[number] if number < len(inputs) else None
        if declared is None or declared.folder is None:
            continue
        folder = _place(declared.folder)
        for uri in _named_in(path, entry):
            if not _is_below(uri, folder):
                raise RefusedError(
                    f"source {declared.source!r} was planned to read a file that is not in its "
                    "folder",
                    where=f"{uri[:_LONGEST_SHOWN]} is not below {declared.folder}",
                    hint="Spark would read it wherever it is. If you trust the store, declare the "
                    "path that the epoch was planned with.",
                )


def _named_in(path: str, entry: str) -> Iterator[str]:
    """The files that an entry of a file source's log names, each line as Spark reads it."""
    require_few_lines(entry)
    head, *lines = entry.split("\n")
    try:
        if not _VERSION_LINE.fullmatch(head):
            raise ValueError("it does not begin with a version")
        for line in filter(None, lines):
            named = decode_unambiguous(line)["path"]
            if not isinstance(named, str):
                raise TypeError("a path is no text")
            yield named
    except (*UNREADABLE, LookupError, TypeError) as error:
        raise DamageError(f"{path} does not list files: {error!r}") from None


def _is_below(uri: str, folder: tuple[str, str, str]) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    if _ODD.search(uri) or parts.query or parts.fragment:
        return False  # Spark encodes these
    scheme, host, path = _place(f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}")
    root = folder[2].rstrip("/") + "/"
    return (scheme, host) == folder[:2] and f"{path}/".startswith(root)


def _place(uri: str) -> tuple[str, str, str]:
    """Scheme, server and path of a URI that is not encoded, each in one form."""
    match = _URI.fullmatch(uri)
    if match is None:
        return "", "", uri
    path = posixpath.normpath("/" + (match[3] or "").lstrip("/"))
    return match[1].lower(), (match[2] or "").lower(), path
