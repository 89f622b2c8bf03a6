"""Spark's two logs, as text: what a micro-batch was planned to read, and that it was done.

``offsets/N`` is written before batch N runs: a version line, one line of metadata (watermark,
settings that a restart keeps), then one line for each source in the order of the plan's leaves.
``commits/N`` is written after it. Readable without Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seamark import limits
from seamark._common.checks import I64_MAX, I64_MIN
from seamark._common.json_documents import decode_foreign, decode_unambiguous
from seamark.errors import DamageError, RefusedError

NO_OFFSET: Final = "-"
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_STATE_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,100}")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class Plan(msgspec.Struct, frozen=True):
    """What Spark planned for an epoch: enough to run it again on exactly the same rows."""

    offsets: str
    """The offset log's entry of the batch, verbatim."""
    sources: dict[str, str] = {}
    """Entries of the sources' own logs that are new in this batch, by path."""
    leaves: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """The source of each line, where that is known."""
    follows: str | msgspec.UnsetType = msgspec.UNSET
    """The fingerprint of the epoch before, where that is known; empty for the first one."""

    def has_rows_of(self, other: Plan) -> bool:
        """Whether both read the same. Verbatim: the entry has the time and the watermark, too."""
        return (self.offsets, self.sources) == (other.offsets, other.sources)


@dataclass(frozen=True)
class OffsetLogEntry:
    """What one batch was planned to read."""

    text: str
    """The file, byte for byte."""
    version: str
    metadata: Mapping[str, Any]
    lines: tuple[str, ...]
    """One for each source, verbatim."""
    names: tuple[str, ...] = ()
    """The sources' names in the order of the lines, where the log goes by names (version 2)."""

    @property
    def watermark_ms(self) -> int:
        """The watermark that the batch runs with; 0 when there is none."""
        return _whole(self.metadata.get("batchWatermarkMs", 0), "the offset log's watermark")

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings that Spark pins for the life of the checkpoint."""
        conf = self.metadata.get("conf", {})
        return conf if isinstance(conf, dict) else {}

    @property
    def state_partitions(self) -> int:
        """How many partitions each stateful operator has; 0 when the log does not say."""
        return _whole(self.conf.get(SHUFFLE_PARTITIONS, 0), "the offset log's number of partitions")


def _whole(value: object, what: str) -> int:
    try:
        number: int = int(value)  # type: ignore[call-overload]
    except (ValueError, TypeError, OverflowError):
        number = I64_MAX + 1
    if not I64_MIN <= number <= I64_MAX:
        raise DamageError(f"{what} is not a number that Spark takes")
    return number


def log_lines(text: str) -> list[str]:
    """The lines of a log entry as Spark reads them: a line end at the end begins no line.

    :class:`DamageError` when there are far more than an entry of its length has.

    >>> log_lines("v1\\n{}\\n"), log_lines("v1\\r\\n{}\\n\\n")
    (['v1', '{}'], ['v1', '{}', ''])
    """
    require_few_lines(text)
    lines = _LINE_END.split(text)
    return lines if lines[-1] else lines[:-1]


def require_few_lines(text: str) -> None:
    """:class:`DamageError` when a log's entry has far more lines than one of its length has."""
    count = sum(map(text.count, "\n\r"))
    if count > limits.RECORDS_FLOOR + len(text) // limits.BYTES_PER_LINE:
        raise DamageError(f"a log's entry of {len(text)} characters has {count} lines")


def log_text(path: str, data: bytes) -> str:
    """What an entry of a log says, or a description of state; :class:`DamageError` if not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DamageError(f"{path} is not a text in UTF-8") from None


def parse_offsets(text: str) -> OffsetLogEntry:
    """An entry of the offset log; :class:`DamageError` for anything else."""
    head, *rest = log_lines(text) or [""]
    if head not in ("v1", "v2") or not rest:
        raise DamageError(f"not an entry of Spark's offset log: it begins with {head[:20]!r}")
    if len(rest) - 1 > limits.MOST_SOURCES:
        raise DamageError(
            f"the offset log has {len(rest) - 1} sources, and {limits.MOST_SOURCES} is the most"
        )
    try:
        # the first versions of Spark had nothing to say here
        metadata = decode_foreign(rest[0]) if rest[0].strip() or head != "v1" else {}
    except (ValueError, RecursionError, DamageError) as error:
        raise DamageError(f"the offset log's metadata cannot be read: {error}") from None
    if not isinstance(metadata, dict):
        raise DamageError("the offset log's metadata is not an object")
    if head == "v1":
        return OffsetLogEntry(text, head, metadata, tuple(rest[1:]))
    named = [line.partition(":") for line in rest[1:]]
    if any(not colon for _, colon, _ in named):
        raise DamageError("the offset log has a source without a name")
    return OffsetLogEntry(
        text,
        head,
        metadata,
        tuple(line for _, _, line in named),
        tuple(name for name, _, _ in named),
    )


def with_partitions(text: str, partitions: int) -> str:
    """An entry of the offset log that pins another number of state partitions.

    >>> with_partitions('v1\\n{"batchWatermarkMs":0,"conf":{"a":"b"}}\\n-', 7).splitlines()[1]
    '{"batchWatermarkMs":0,"conf":{"a":"b","spark.sql.shuffle.partitions":"7"}}'
    """
    entry = parse_offsets(text)
    conf = {**entry.conf, SHUFFLE_PARTITIONS: str(partitions)}
    head, _, *lines = log_lines(text)
    metadata = json.dumps({**entry.metadata, "conf": conf}, separators=(",", ":"))
    return "\n".join([head, metadata, *lines])


def require_unnamed(entry: OffsetLogEntry) -> OffsetLogEntry:
    """``entry``, unless its query goes by named sources: a pipeline cannot be made of that."""
    if entry.names:
        raise RefusedError(
            "this query uses Spark's source evolution (offset log version 2)",
            hint="Set spark.sql.streaming.queryEvolution.enableSourceEvolution to false: a source "
            "that feeds several outputs is refused by Spark with it.",
        )
    return entry


def readable_offset(line: str) -> dict[str, str]:
    """One source's end offset as names and values that a person can read.

    :class:`DamageError` for one that is nested without end or has too many values.

    >>> readable_offset('{"trades":{"0":17,"1":20}}')
    {'trades-0': '17', 'trades-1': '20'}
    >>> readable_offset('{"logOffset":3}'), readable_offset("7"), readable_offset("-")
    ({'logOffset': '3'}, {'offset': '7'}, {})
    """
    if line == NO_OFFSET:
        return {}
    try:
        value = decode_foreign(line)
        return _flat(value) if isinstance(value, dict) else {"offset": _plain(value)}
    except ValueError:
        return {"offset": line}
    except RecursionError as error:
        raise DamageError(f"a source's offset cannot be read: {error}") from None


def _flat(value: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    left = limits.LARGEST_PREFIXES
    for name, inner in value.items():
        is_object = isinstance(inner, dict) and inner and len(name) <= limits.LONGEST_PREFIX
        fits = is_object and len(name) * len(inner) <= left
        if fits and not any(isinstance(at, dict | list) for at in inner.values()):
            left -= len(name) * len(inner)
            flat |= {f"{name}-{part}": _plain(at) for part, at in inner.items()}
        else:
            flat[name] = _plain(inner)
    return flat


def log_offset(line: str) -> int | None:
    """How far a file source's own log is read, or None for a source that has no such log."""
    if not line.startswith('{"logOffset":'):
        return None
    try:
        return int(decode_foreign(line)["logOffset"])
    except (ValueError, TypeError, OverflowError, RecursionError, DamageError):
        return None


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


StateIds = Mapping[int, Sequence[Sequence[str]]]
"""For checkpoint format 2: operator → partition → the unique id of each of its stores."""


def commit_text(next_watermark_ms: int, state_ids: StateIds | None = None) -> str:
    """An entry of the commit log, as Spark itself writes it.

    >>> commit_text(5)
    'v1\\n{"nextBatchWatermarkMs":5}'
    """
    if state_ids is None:
        return f'v1\n{{"nextBatchWatermarkMs":{next_watermark_ms}}}'
    ids = {str(operator): [list(one) for one in parts] for operator, parts in state_ids.items()}
    body = {"nextBatchWatermarkMs": next_watermark_ms, "stateUniqueIds": ids}
    return "v2\n" + json.dumps(body, separators=(",", ":"))


CommitIds = dict[int, list[list[str]]]


def parse_commit(text: str) -> tuple[int, CommitIds | None]:
    """(next watermark, state ids) of an entry of the commit log.

    The ids are None when it names none: an empty map says that no state file carries an id.
    :class:`DamageError` also for what cannot be one: Spark makes it a part of a path.

    >>> parse_commit('v2\\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{}}')
    (5, None)
    """
    head, body, *_ = [*log_lines(text), "", ""]  # Spark reads no third line
    try:
        fields = decode_unambiguous(body)
        if head.strip() not in ("v1", "v2", "v3") or not isinstance(fields, dict):
            raise ValueError(f"it begins with {head[:20]!r}")
        ids = fields.get("stateUniqueIds")
        parsed = None if ids is None else {int(op): parts for op, parts in ids.items()}
        if parsed and not all(map(_are_ids, parsed.values())):
            raise ValueError("the ids of its state files cannot be read")
        return _whole(fields.get("nextBatchWatermarkMs", 0), "its watermark"), parsed or None
    except (ValueError, TypeError, AttributeError, RecursionError, DamageError) as error:
        what = error.what if isinstance(error, DamageError) else error
        raise DamageError(f"not an entry of Spark's commit log: {what}") from None


def _are_ids(parts: object) -> bool:
    return isinstance(parts, list) and all(
        isinstance(stores, list) and all(map(is_state_id, stores)) for stores in parts
    )


def is_state_id(uid: object) -> bool:
    """Whether Spark can have given a state file this id. Its name has it after the version."""
    return isinstance(uid, str) and _STATE_ID.fullmatch(uid) is not None
