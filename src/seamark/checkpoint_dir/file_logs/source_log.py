"""The file source's own log below ``sources/``: which files belong to which entry.

Lines are ``{"path", "timestamp", "batchId"}``; ``batchId`` is the number of the entry. Because each
line carries it, what a compaction has replaced can be separated again. The paths are absolute, as
in the file sink's log, and can be made to lead elsewhere (:func:`moved`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from seamark._common.json_documents import UNREADABLE, decode_foreign
from seamark.checkpoint_dir.file_logs.compactions import (
    DEFAULT_INTERVAL,
    LogLayout,
    LogProblem,
    entry_name,
    first_missing,
    is_accepted,
    known_interval,
    laid_out,
    lines_of,
    missing_between,
    parse_names,
    pinned_interval,
    text_of,
)
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import DamageError
from seamark.spark.batch_log import require_few_lines

ReadText = Callable[[str], str]
_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<host>[^/]*))?(?P<path>.*)")
# what java.net.URI leaves as it is in a path
_SAFE: Final = "/:@&=+$,;-_.!~*'()"


class _FileLine(msgspec.Struct):
    path: str
    timestamp: int
    batch: int = msgspec.field(name="batchId")


_decoder: Final = msgspec.json.Decoder(_FileLine)


def entries_up_to(names: Collection[str], last: int, read: ReadText) -> dict[str, str]:
    """What Spark needs of a log to continue after its entry ``last``: name → text.

    The newest compaction at or before ``last``, the one before it (two of them tell a restart
    the interval, whatever its settings are), and the entries after; all entries from 0 when there
    is no compaction. What Spark has removed is made again from a later compaction. ``last`` = -1
    gives nothing. As long as there are fewer than two compactions, a restart whose setting is
    lower than the log's interval may fail, as Spark's own directory did at that entry.

    :class:`MissingVersion` for an entry that is not there and in no later compaction,
    :class:`DamageError` for one that cannot be read. What ``read`` raises passes through.
    """
    if last < 0:
        return {}
    log = _Log(names, read)
    log.require(last)
    layout = log.layout(last)
    return {
        **{entry_name(at, True): text_of(log.lines_up_to(at)) for at in layout.compacted},
        **{entry_name(at, False): text_of(log.own_lines(at)) for at in layout.plain},
    }


def log_problems(names: Collection[str], read: ReadText) -> list[LogProblem]:
    """What is wrong with a log, with the codes

    ``source-log-gap``: an entry is missing that a restart reads. ``source-log-damaged``: an entry
    cannot be read or holds lines of another one. ``source-log-disagrees``: an entry says something
    else than the newest compaction. ``source-log-interval``: no setting makes a restart find all
    entries.
    """
    log = _Log(names, read)
    entries = log.names
    base = entries.compacted[-1] if entries.compacted else -1
    problems = [
        LogProblem("source-log-gap", str(at), f"entry {at} of the source's log is missing")
        for at in missing_between(log.plain, base + 1, entries.newest)
    ]
    settings = (DEFAULT_INTERVAL, entries.newest + 2)
    if not any(is_accepted(entries.compacted, entries.newest, setting) for setting in settings):
        what = f"a restart looks for other compactions than those at {_listed(entries.compacted)}"
        problems.append(LogProblem("source-log-interval", entry_name(base, True), what))
    truth = _tried(log, base, True, problems) or {}
    for at, compacted in sorted(
        [(at, True) for at in entries.compacted[:-1]] + [(at, False) for at in entries.plain]
    ):
        own = _tried(log, at, compacted, problems)
        if own is None or not truth or at > base:
            continue
        differing = [number for number, lines in own.items() if lines != truth.get(number)]
        if differing:
            what = f"entry {_listed(differing)} differs from what {base}.compact says of it"
            problems.append(LogProblem("source-log-disagrees", entry_name(at, compacted), what))
    return problems


def is_file_log(text: str) -> bool:
    """Whether an entry below ``sources/`` is of a file source; others keep where they began."""
    try:
        lines = lines_of("", text)
        return bool(lines) and bool(_decoder.decode(lines[0]).path)
    except (DamageError, *UNREADABLE):
        return False


class _Log:
    """The entries of one log, read when they are needed."""

    def __init__(self, names: Collection[str], read: ReadText) -> None:
        self.names = parse_names(names)
        self.plain = set(self.names.plain)
        self._read = read
        self._parsed: dict[str, dict[int, list[str]]] = {}

    def require(self, last: int) -> None:
        """:class:`MissingVersion` when an entry up to ``last`` is nowhere, by the names alone."""
        covered = max((at for at in self.names.compacted if at <= last), default=-1)
        if not any(at > last for at in self.names.compacted):
            missing = first_missing(self.plain, covered + 1, last)
            if missing is not None:
                raise _nowhere(missing)

    def layout(self, last: int) -> LogLayout:
        """Which entries to write; those that are there, when a restart accepts them."""
        later = [at for at in self.names.compacted if at > last]
        interval = known_interval(self.names.compacted)
        candidates = list(self._as_it_is(last, interval))
        if not later:
            return next(iter(candidates), LogLayout((), range(last + 1)))
        if interval is not None:
            candidates.append(laid_out(last, interval))
        settings = (DEFAULT_INTERVAL, interval or DEFAULT_INTERVAL)
        for candidate in candidates:
            if all(is_accepted(candidate.compacted, last, setting) for setting in settings):
                return candidate
        return laid_out(last, pinned_interval(last))

    def _as_it_is(self, last: int, interval: int | None) -> Iterator[LogLayout]:
        older = [at for at in self.names.compacted if at <= last]
        if not older:
            if first_missing(self.plain, 0, last) is None:
                yield LogLayout((), range(last + 1))
            return
        base = older[-1]
        step = base - older[-2] if len(older) > 1 else interval
        pins = step is not None and step <= base and (base + 1) % step == 0 and last < base + step
        before = (base - step,) if step is not None and pins else ()
        yield LogLayout((*before, base), range(base + 1, last + 1))

    def entry(self, number: int, compacted: bool) -> dict[int, list[str]]:
        """The lines of an entry that is there, by the entry that they belong to."""
        name = entry_name(number, compacted)
        if name in self._parsed:
            return self._parsed[name]
        lines: dict[int, list[str]] = {}
        for at, line in enumerate(lines_of(name, self._read(name)), start=2):
            try:
                batch = _decoder.decode(line).batch
            except UNREADABLE as error:
                raise DamageError(
                    f"line {at} of the log entry {name} cannot be read: {error}"
                ) from None
            lines.setdefault(batch, []).append(line)
        first = 0 if compacted else number
        missing = first_missing(lines, first, number)
        if missing is not None:
            raise DamageError(f"the log entry {name} holds no line of entry {missing}")
        if len(lines) != number + 1 - first:
            raise DamageError(f"the log entry {name} holds lines of entries that are not its own")
        self._parsed[name] = lines
        return lines

    def own_lines(self, number: int) -> list[str]:
        """What one entry added, wherever that stands."""
        if number in self.plain:
            return self.entry(number, False)[number]
        later = self._compaction_from(number)
        if later is None:
            raise _nowhere(number)
        return self.entry(later, True)[number]

    def _compaction_from(self, number: int) -> int | None:
        """The first compaction that has an entry; asked for each entry, of very many."""
        at = bisect_left(self.names.compacted, number)
        return self.names.compacted[at] if at < len(self.names.compacted) else None

    def lines_up_to(self, number: int) -> Iterator[str]:
        """All that a compaction at this entry holds."""
        at_or_after = self._compaction_from(number)
        if at_or_after is not None:
            whole = self.entry(at_or_after, True)
            for batch in range(number + 1):
                yield from whole[batch]
            return
        base = max(self.names.compacted, default=-1)
        if base >= 0:
            yield from self.lines_up_to(base)
        for batch in range(base + 1, number + 1):
            yield from self.own_lines(batch)


def _nowhere(number: int) -> MissingVersion:
    return MissingVersion(
        f"entry {number} of the source's log is not there, and no later compaction has it"
    )


def _tried(
    log: _Log, number: int, compacted: bool, problems: list[LogProblem]
) -> dict[int, list[str]] | None:
    """An entry's lines, or None after noting why it has none."""
    if number < 0:
        return None
    try:
        return log.entry(number, compacted)
    except DamageError as error:
        name = entry_name(number, compacted)
        problems.append(LogProblem("source-log-damaged", name, error.what))
        return None


def _listed(numbers: Collection[int]) -> str:
    shown = ", ".join(str(number) for number in list(numbers)[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"


def moved(text: str, prefixes: Mapping[str, str]) -> str:
    """An entry of a source's or a sink's log with its paths under other folders.

    ``prefixes`` is old folder → new folder, each the way one gives a path to Spark: not escaped,
    with or without ``file:``. The longest one that fits wins; a line that none fits, or that
    names no path, stays as it is, byte for byte. Paths are escaped as Spark escapes them.
    """
    ordered = sorted(
        ((_split(escaped(old)), escaped(new)) for old, new in prefixes.items()),
        key=lambda pair: -len(pair[0][1]),
    )
    require_few_lines(text)
    return "\n".join(_moved_line(line, ordered) for line in text.split("\n"))


def escaped(path: str) -> str:
    """A folder as it stands in Spark's logs, without a slash at the end.

    >>> escaped("/data/in put"), escaped("s3a://bucket/50%/")
    ('file:///data/in%20put', 's3a://bucket/50%25')
    """
    match = _URI.fullmatch(path)
    root = f"{match['scheme']}://{match['host'] or ''}" if match else "file://"
    inner = match["path"] if match else path
    return root + "".join(_escaped_char(char) for char in inner.rstrip("/"))


def _escaped_char(char: str) -> str:
    # Java leaves letters of all languages as they are, but no spaces and no control characters
    return char if ord(char) >= 0xA0 and char.isprintable() else quote(char, safe=_SAFE)


def _split(uri: str) -> tuple[str, str]:
    """(scheme and host, path): ``file:/x`` and ``file:///x`` are the same place."""
    match = _URI.fullmatch(uri)
    if match is None:
        return "file://", uri
    return f"{match['scheme']}://{match['host'] or ''}", match["path"]


def _moved_line(line: str, ordered: list[tuple[tuple[str, str], str]]) -> str:
    try:
        fields = decode_foreign(line)
        place, path = _split(fields["path"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return line  # the version, or what another kind of source has noted
    for (old_place, old_path), new in ordered:
        rest = path.removeprefix(old_path)
        if place == old_place and path.startswith(old_path) and rest[:1] in ("", "/"):
            return json.dumps(
                fields | {"path": new + rest}, separators=(",", ":"), ensure_ascii=False
            )
    return line
