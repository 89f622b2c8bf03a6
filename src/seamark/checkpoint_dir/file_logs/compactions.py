"""Logs that Spark compacts now and then: the file source's own log and the file sink's.

Entry k is a file ``k``, or ``k.compact`` with the lines of all entries up to k. A restart does not
look which of the two is there: it works out an interval from the compactions that it finds and
from a setting that nothing pins, and asks for exactly those names. So a log that was cut off, or
put together again, has to be laid out so that every such question has its answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import isqrt
from typing import Final, NamedTuple

from seamark import limits
from seamark.errors import DamageError
from seamark.spark.batch_log import log_lines

DEFAULT_INTERVAL: Final = 10
"""``spark.sql.streaming.fileSource.log.compactInterval``, and the same of the sink."""
VERSION_LINE: Final = "v1"

_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,18})(\.compact)?")
# (from this entry on, the interval of a new layout): with two compactions, or one at 2, no setting
# makes a restart work out another one
_PINNED: Final = ((19, 10), (9, 5), (2, 3))


class LogProblem(NamedTuple):
    """Something about a log that a restart would trip over, or silently believe."""

    code: str
    """Stable, for programs."""
    name: str
    """The entry's file, or the one that is missing."""
    what: str


class LogNames(NamedTuple):
    """The entries of a log by their numbers, in order."""

    plain: tuple[int, ...]
    compacted: tuple[int, ...]

    @property
    def newest(self) -> int:
        """The number of the last entry, -1 for an empty log."""
        return max((*self.plain[-1:], *self.compacted[-1:]), default=-1)


class LogLayout(NamedTuple):
    """Which entries a log consists of."""

    compacted: tuple[int, ...]
    plain: Sequence[int]
    """A range: a number in a name may be far away."""


def entry_name(number: int, compacted: bool) -> str:
    """The name of an entry's file."""
    return f"{number}.compact" if compacted else str(number)


def entry_number(name: str) -> int | None:
    """The number of the entry that a file holds; None for a file of another kind."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def parse_names(names: Iterable[str]) -> LogNames:
    """The entries among the names of a folder; temporary and checksum files are passed over."""
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    compacted = {int(match[1]) for match in matches if match[2]}
    # a compaction says all that the entry next to it can say
    plain = {int(match[1]) for match in matches} - compacted
    return LogNames(tuple(sorted(plain)), tuple(sorted(compacted)))


def lines_of(name: str, text: str) -> list[str]:
    """The lines of an entry after its version; :class:`DamageError` when it is not whole."""
    if not text:
        raise DamageError(f"the log entry {name} is empty")
    head, *lines = log_lines(text)
    if head != VERSION_LINE:
        raise DamageError(f"the log entry {name} begins with {head[:20]!r} and not with 'v1'")
    return lines


def text_of(lines: Iterable[str]) -> str:
    """An entry as Spark writes it: without a newline at the end."""
    return "\n".join([VERSION_LINE, *lines])


def missing_between(present: Collection[int], first: int, before: int) -> Iterator[int]:
    """The numbers from ``first`` on, and below ``before``, that are not present; not too many.

    The first takes as long as there are numbers present, however far the last one is.
    """
    there = set(present)
    gaps = (at for at in range(first, before) if at not in there)
    return islice(gaps, limits.MOST_MISSING_NAMED)


def first_missing(present: Collection[int], first: int, last: int) -> int | None:
    """The first number from ``first`` to ``last`` that is not present; None when all are."""
    return next(missing_between(present, first, last + 1), None)


def known_interval(compacted: Sequence[int]) -> int | None:
    """The interval that a log tells for certain: the distance of its two newest compactions."""
    return compacted[-1] - compacted[-2] if len(compacted) > 1 else None


def restart_interval(compacted: Sequence[int], setting: int = DEFAULT_INTERVAL) -> int:
    """The interval that a restart of Spark works out, under a setting.

    >>> restart_interval([]), restart_interval([19, 29]), restart_interval([29])
    (10, 10, 10)
    >>> restart_interval([19]), restart_interval([11], setting=5)
    (20, 6)
    """
    known = known_interval(compacted)
    if known is not None:
        return known
    if not compacted:
        return setting
    count = compacted[0] + 1
    if count <= setting or setting >= count // 2 or count > limits.LARGEST_ENTRY:
        return count
    return _smallest_divisor(count, setting)


def _smallest_divisor(count: int, least: int) -> int:
    """The smallest divisor of a number that is not below ``least``, up to its half, or itself."""
    below = isqrt(count)
    small = next((i for i in range(least, below + 1) if count % i == 0), None)
    if small is not None:
        return small
    # a divisor above the root has a partner below it
    for partner in range(min(below, count // least), 1, -1):
        if count % partner == 0 and count // partner >= least:
            return count // partner
    return count


def is_accepted(compacted: Collection[int], last: int, setting: int = DEFAULT_INTERVAL) -> bool:
    """Whether a restart finds each entry under the name that it asks for.

    The log ends at ``last``; every entry that is not in ``compacted`` is a plain one.
    """
    interval = restart_interval(sorted(compacted), setting)
    newest = (last + 1) // interval * interval - 1
    start = max(0, newest)
    asked = {newest} if newest >= 0 else set()
    return asked == {number for number in compacted if start <= number <= last}


def laid_out(last: int, interval: int) -> LogLayout:
    """A log that ends at ``last``: two compactions where there is room, then plain entries."""
    base = (last + 1) // interval * interval - 1
    compacted = tuple(at for at in (base - interval, base) if at >= 0)
    return LogLayout(compacted, range(max(base, -1) + 1, last + 1))


def pinned_interval(last: int) -> int:
    """An interval whose layout every setting accepts, as far as that is possible."""
    return next((interval for since, interval in _PINNED if last >= since), DEFAULT_INTERVAL)
