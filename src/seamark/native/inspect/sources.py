"""Where each source stands, and whether its own log holds what the offsets rely on."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark._redaction import Redactor
from seamark.capture.plans import MOST_LINES, position_in, possible_lines
from seamark.checkpoint_dir.file_logs.compactions import entry_name, entry_number, parse_names
from seamark.checkpoint_dir.file_logs.source_log import is_file_log, log_problems
from seamark.native.inspect.cached_listing import CachedListing, numbers_in
from seamark.native.inspect.findings import Code, Finding, Severity, damage, shown
from seamark.native.inspect.logs import Logs
from seamark.spark.batch_log import NO_OFFSET, OffsetLogEntry, log_offset, readable_offset

_LARGEST_READ: Final = 64 << 20
_MOST_ENTRIES: Final = 10_000
_STILL_READ: Final = 100
_SHORTEST_LINE: Final = 20
_WITHOUT_END: Final = 1 << 63
_SEVERITY: Final = {"source-log-disagrees": Severity.WARNING}
_ADVICE: Final = (
    "Put the entry back from a copy of the directory, or roll back to a batch before it."
)


@dataclass(frozen=True)
class SourceSummary:
    """One source of the query."""

    name: str
    kind: str
    """``files``, or empty when the directory does not tell."""
    folder: str | None
    """Where a file source reads, as far as the paths in its log have it in common."""
    offset: dict[str, str] = field(default_factory=dict)
    """Where it stands after the newest planned batch; empty before its beginning."""


def sources_of(listing: CachedListing, logs: Logs) -> list[SourceSummary]:
    """Every line of the newest offsets, with what its own log tells about it."""
    entry = logs.newest
    if entry is None:
        return []
    files = file_logs(listing)
    folders = {name: _input_folder(listing, name) for name in files}
    possible = _lines_of(entry, newest_entries(listing, files))
    owners: dict[str, list[str]] = {}
    for each in folders:
        for line in possible.get(each, ()):
            owners.setdefault(line, []).append(each)
    sources = []
    for number, line in enumerate(entry.lines):
        name = entry.names[number] if entry.names else str(number)
        is_files = log_offset(line) is not None or (line == NO_OFFSET and name in folders)
        own = owners.get(line, [])
        # equal lines may be of one source or of several
        is_own = line in possible.get(name, ())
        only = folders[own[0]] if len(own) == 1 else folders.get(name) if is_own else None
        folder = only if is_files else None
        offset = {shown(k): _hidden(k, v) for k, v in readable_offset(line).items()}
        sources.append(SourceSummary(shown(name), "files" if is_files else "", folder, offset))
    return sources


def _hidden(name: str, value: str) -> str:
    """A value as it may be shown: a source may keep anything in its offsets."""
    return shown(value if value.isdigit() else Redactor({name: value})(value))


def file_logs(listing: CachedListing) -> list[str]:
    """The folders below ``sources/`` that are logs of file sources."""
    folders = []
    for folder in sorted(listing.names("sources")):
        newest = _newest_entry(listing, folder)
        if newest is not None and is_file_log(_text(listing, newest) or ""):
            folders.append(folder)
    return folders


def _newest_entry(listing: CachedListing, folder: str) -> str | None:
    log = parse_names(_names(listing, folder))
    if log.newest < 0:
        return None
    # a plain entry is small
    newest = log.plain[-1] if log.plain else log.newest
    return f"sources/{folder}/{entry_name(newest, newest in log.compacted)}"


def _names(listing: CachedListing, folder: str) -> list[str]:
    return [
        name
        for name in listing.names(f"sources/{folder}")
        if f"sources/{folder}/{name}" in listing.entries and len(name) < 30
    ]


def _text(listing: CachedListing, path: str) -> str | None:
    if path not in listing.entries or listing.entries[path].size > _LARGEST_READ:
        return None
    return listing.read_text(path)


class _Line(msgspec.Struct):
    path: str


def _input_folder(listing: CachedListing, folder: str) -> str | None:
    """The folder that the files of some entries have in common."""
    log = parse_names(_names(listing, folder))
    some = [*log.plain[:2], *log.plain[-2:]] or [log.newest]
    paths: list[str] = []
    for number in some:
        path = f"sources/{folder}/{entry_name(number, number in log.compacted)}"
        for line in (_text(listing, path) or "").split("\n", 100)[1:100]:
            try:
                paths.append(msgspec.json.decode(line, type=_Line).path)
            except UNREADABLE:
                continue
    parents = sorted({os.path.dirname(path) for path in paths})
    if not parents:
        return None
    common = []
    for first, last in zip(parents[0].split("/"), parents[-1].split("/"), strict=False):
        if first != last:
            break
        common.append(first)
    return shown("/".join(common)) or None


# which line is whose


NewestEntries = Mapping[int, int | None]
"""Number of a source → the last entry of its log; None for a source without one."""


def newest_entries(listing: CachedListing, files: list[str]) -> NewestEntries:
    """The last entries of all sources that are known by their numbers; goes through all names."""
    logs = frozenset(files)
    newest: dict[int, int | None] = {}
    for number in numbers_in(listing.names("sources")):
        folder = str(number)
        is_log = folder in logs or bool(_empty_entries(listing, folder))
        newest[number] = parse_names(_names(listing, folder)).newest if is_log else None
    return newest


def positions(entry: OffsetLogEntry, all_newest: NewestEntries) -> dict[str, int]:
    """Folder of a file source → the entry that a batch has read, in its log or not."""
    by_folder: dict[str, int] = {}
    for folder, lines in _lines_of(entry, all_newest).items():
        known = [at for line in lines if (at := position_in(line)) is not None]
        if known:
            by_folder[folder] = max(known)
    return by_folder


def _lines_of(entry: OffsetLogEntry, all_newest: NewestEntries) -> dict[str, set[str]]:
    """Folder of a source → the lines of the offset log that can be its own."""
    if entry.names:
        return {name: {line} for name, line in zip(entry.names, entry.lines, strict=True)}
    if len(entry.lines) > MOST_LINES:
        return {}
    newest = {number: last for number, last in all_newest.items() if number < len(entry.lines)}
    possible = possible_lines(entry.lines, newest)
    # when none fits, a log is too short: one of them if that explains it, or else any
    logs = [number for number, last in newest.items() if last is not None]
    for longer in (*([number] for number in logs), logs):
        possible = possible or possible_lines(
            entry.lines, newest | dict.fromkeys(longer, _WITHOUT_END)
        )
    return {str(number): lines for number, lines in possible.items() if number in newest}


def _empty_entries(listing: CachedListing, folder: str) -> list[str]:
    """Entries without a byte, as only a file source's log that is damaged has them."""
    names = _names(listing, folder)
    empty = [name for name in names if not listing.is_there(f"sources/{folder}/{name}")]
    return [name for name in empty if entry_number(name) is not None]


# what is wrong


def source_findings(listing: CachedListing, logs: Logs) -> Iterator[Finding]:
    """Everything about the sources' own logs that a restart would trip over."""
    entry = logs.newest
    if entry is None:
        return
    files = file_logs(listing)
    problems = [*_missing(listing, logs, entry, files), *_log_problems(listing, entry, files)]
    yield from problems
    if not problems and not _fits(listing, entry, files):
        batch = max(logs.entries)
        yield _damaged(
            Code.SOURCE_LOG_MISSING,
            f"offsets/{batch}",  # of a query that runs on, a second look tells of another batch
            f"the logs of the sources do not fit the offsets of batch {batch}: one of them is not "
            "there, or cannot be read",
            "an error about a source's log",
        )


def _fits(listing: CachedListing, entry: OffsetLogEntry, files: list[str]) -> bool:
    """Whether every line of the offsets can be of a source whose log is there."""
    has_logs = any(log_offset(line) is not None for line in entry.lines)
    is_assigned = bool(entry.names) or len(entry.lines) <= MOST_LINES
    return not has_logs or not is_assigned or bool(_lines_of(entry, newest_entries(listing, files)))


def _log_problems(
    listing: CachedListing, entry: OffsetLogEntry, files: list[str]
) -> Iterator[Finding]:
    logs = frozenset(files)
    by_folder = dict(zip(entry.names or map(str, count()), entry.lines, strict=False))
    for folder in sorted(listing.names("sources")):
        here = f"sources/{folder}"
        empty = _empty_entries(listing, folder)
        for name in empty:
            what = f"entry {name} of source {folder}'s log is empty"
            yield _damaged(Code.SOURCE_LOG_DAMAGED, f"{here}/{name}", what, _stops(here, name))
        looks_like_files = log_offset(by_folder.get(folder, "")) is not None
        if folder in logs or (empty and looks_like_files):
            yield from _log_findings(listing, folder, frozenset(empty))


def _stops(here: str, name: str) -> str:
    return f"an error about the source's log entry {here}/{name}"


def _damaged(code: Code, path: str, what: str, stops: str | None) -> Finding:
    return damage(code, path, what, _ADVICE, stops)


def _missing(
    listing: CachedListing, logs: Logs, entry: OffsetLogEntry, files: list[str]
) -> Iterator[Finding]:
    """Entries that the offsets name and the log has not reached, or a log that is not there."""
    needed = [at for line in entry.lines if (at := log_offset(line)) is not None and at >= 0]
    if not needed:
        return
    batch = max(logs.entries)
    if not files and not any(_names(listing, folder) for folder in listing.names("sources")):
        what = f"batch {batch} stands at entry {max(needed)} of a source's log, and there is none"
        error = f'"batch {max(needed)} doesn\'t exist"'
        yield _damaged(Code.SOURCE_LOG_MISSING, "sources", what, error)
        return
    for folder, at in positions(entry, newest_entries(listing, files)).items():
        newest = parse_names(_names(listing, folder)).newest
        if at > newest:
            path = f"sources/{folder}/{newest + 1}"
            what = (
                f"batch {batch} stands at entry {at} of source {folder}'s log, which ends at "
                f"{newest}"
            )
            error = f'"batch {at} doesn\'t exist"'
            yield _damaged(Code.SOURCE_LOG_MISSING, path, what, error)


def _log_findings(listing: CachedListing, folder: str, empty: frozenset[str]) -> Iterator[Finding]:
    here = f"sources/{folder}"
    log = parse_names(name for name in _names(listing, folder) if name not in empty)
    base = log.compacted[-1] if log.compacted else -1
    after = [at for at in log.plain if at > base]
    if log.newest - base - len(after) > _MOST_ENTRIES:
        what = f"entries between {base + 1} and {log.newest} of source {folder}'s log are missing"
        yield _damaged(Code.SOURCE_LOG_GAP, f"{here}/{base + 1}", what, _stops(here, str(base + 1)))
        return
    for at in log.compacted:
        path = f"{here}/{entry_name(at, True)}"
        size = listing.entries[path].size
        if size < _SHORTEST_LINE * (at + 1):
            what = f"{path} is too short to list what {at + 1} entries have read"
            yield _damaged(Code.SOURCE_LOG_DAMAGED, path, what, _stops(here, str(at)))
            return
        if size > _LARGEST_READ:
            return
    newest = {entry_name(at, at == base) for at in (*after, base) if at >= 0}
    # nothing reads what is older than the newest compactions
    recent = [entry_name(at, False) for at in log.plain if at > base - _STILL_READ]
    recent += [entry_name(at, True) for at in log.compacted[-3:]]
    listing.fetch(f"{here}/{name}" for name in recent)

    def read(name: str) -> str:
        text = listing.read_text(f"{here}/{name}")
        return text if text is not None else ""

    for problem in log_problems(recent, read):
        if problem.name in empty:
            continue  # reported already: it is empty
        path = f"{here}/{problem.name}"
        severity = _SEVERITY.get(problem.code, Severity.DAMAGE)
        needed = problem.name in newest or path not in listing.entries
        stops = _stops(here, problem.name) if severity == Severity.DAMAGE and needed else None
        what = f"source {folder}: {problem.what}"
        yield Finding(Code(problem.code), path, what, _ADVICE, stops, severity=severity)
