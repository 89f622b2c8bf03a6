"""Seamark's own fields of a manifest: typed here, kept in ``extra`` under their names in JSON.

A document with a good checksum may still hold a value that Seamark never writes. Such a field
reads as if it were absent, and :mod:`seamark.manifest.findings` reports it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar, overload

import msgspec

from seamark._common.checks import I64_MAX, I64_MIN
from seamark.manifest.origins import ForkOrigin, SourceInput

T = TypeVar("T")

_Id = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
_Time = Annotated[int, msgspec.Meta(ge=I64_MIN, le=I64_MAX)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_RowDigest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


_OBJECT_NAME: Final = re.compile(r"([0-9]{1,19})-[0-9a-f]{32}")


def is_object_name(name: str) -> bool:
    """Whether a name is one that a shared object can have."""
    return _OBJECT_NAME.fullmatch(name) is not None


def generation_of(name: str) -> int:
    """The generation of the writer that made an object."""
    match = _OBJECT_NAME.fullmatch(name)
    return int(match[1]) if match else 0


class SharedObject(NamedTuple):
    """Bytes that several checkpoints need: an object of the store, and what it must hold."""

    name: str
    size: _Id
    sha256: _Sha256


class OutputDigest(msgspec.Struct, frozen=True):
    """How many rows an output had in an epoch, and which; the same of all epochs so far."""

    rows: _Id
    digest: _RowDigest
    """Does not depend on the order of rows, and adds up: see :mod:`seamark.spark.row_digests`."""
    since: _Id
    """The first epoch that is part of the totals; there is none without a digest since then."""
    total_rows: _Id
    total_digest: _RowDigest
    formula: _Id = 1
    """What made both digests: those of another formula cannot be compared with them."""
    computed_again: tuple[_Id, ...] = ()
    """Epochs since then that lost their checkpoint and ran again: a sink shows the rows of the
    first time, and digests are of the second, which may have come out different."""


class _Document(Protocol):
    @property
    def extra(self) -> dict[str, Any]: ...


class Fact(Generic[T]):
    """A field of Seamark's own, as an attribute of type ``T``.

    It is read once and kept with the document, so that asking again costs nothing: a document may
    name very many sinks or sources, and whoever goes through them asks for each.
    """

    name: str

    def __init__(
        self,
        read: Callable[[object], Any],
        type_text: str = "",
        *,
        absent: Any = None,
        is_only_shown: bool = False,
        makes_it_ours: bool = True,
    ) -> None:
        self._read = read
        self.type_text = type_text
        """What a value must be, for a finding; empty when another check covers the field."""
        self._absent = absent
        self.is_only_shown = is_only_shown
        """Whether a wrong value harms nothing: no restore uses the field."""
        self.makes_it_ours = makes_it_ours
        """Whether a document with this field counts as written by Seamark."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, document: None, owner: type) -> Self: ...
    @overload
    def __get__(self, document: _Document, owner: type) -> T: ...
    def __get__(self, document: _Document | None, owner: type) -> Self | T:
        if document is None:
            return self
        value = self._read(document.extra.get(self.name))
        # no field of the document: from here on the attribute is found there
        document.__dict__[self.name] = found = self._absent if value is None else value
        return found  # type: ignore[no-any-return]

    def is_wrong_in(self, document: _Document) -> bool:
        """Whether the field is there and holds something of another type."""
        value = document.extra.get(self.name)
        return value is not None and self._read(value) is None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(least: int, most: int) -> Callable[[object], int | None]:
    def read(value: object) -> int | None:
        return value if type(value) is int and least <= value <= most else None

    return read


def _of_type(kind: Any) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        try:
            return None if value is None else msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError):
            return None

    return read


_number = _integer(0, I64_MAX)
_object = _of_type(dict[str, Any])
_texts = _of_type(list[str])


class SeamarkFacts:
    """Seamark's own fields. Each is None when the document does not have it."""

    __slots__ = ()

    self_checksum = Fact[str | None](_text)
    """SHA-256 of the document without this member."""
    decision = Fact[str | None](_text, "a text", is_only_shown=True)
    """Digest of what never changes after the decision: see :mod:`seamark.manifest.decisions`."""
    parent_decision = Fact[str | None](_text, "a text", is_only_shown=True)
    """The same of its parent."""
    writer = Fact[str | None](_text, "a text", is_only_shown=True)
    """Host, process and version that wrote it."""
    generation = Fact[int](_number, "a number", absent=0)
    """The claim under which it was decided; 0 for none."""
    timeline = Fact[str | None](_text, "a text")
    """The unbroken history that it belongs to."""
    state_bytes = Fact[int | None](_number, "a number of bytes")
    """Length of the sidecar, 0 for none."""
    state_object = Fact[str | None](_text)
    """Key of a sidecar that was streamed in parts."""
    supersedes = Fact[tuple[tuple[int, int], ...]](
        _of_type(tuple[tuple[_Id, _Id], ...]), "a list of ranges", absent=()
    )
    """Ranges of ids, first and last, that rollbacks took out of use; empty for none."""
    sink_committables = Fact[dict[str, Any] | None](_object, "an object")
    """What each sink needs to finish or undo the epoch."""
    timings = Fact[dict[str, float] | None](
        _of_type(dict[str, _Seconds]), "an object of seconds", is_only_shown=True
    )
    """Seconds per phase."""
    next_watermark = Fact[int | None](_integer(I64_MIN, I64_MAX), "a time")
    """What the following epoch will run with."""
    attempt = Fact[str | None](_text, "a text")
    """The token under which rows were staged."""
    fingerprint = Fact[str | None](_text, "a text")
    """Digest of timeline, offset lines and source-log entries."""
    structure = Fact[dict[str, Any] | None](_object, "an object")
    """Names, formats and targets that the pipeline's hash is made of."""
    sink_guarantees = Fact[dict[str, str] | None](
        _of_type(dict[str, str]), "an object of texts", is_only_shown=True
    )
    """What a reader of each sink can rely on."""
    read_points = Fact[dict[str, Any] | None](_object, "an object", is_only_shown=True)
    """What to read of each sink to see exactly the epochs up to this one."""
    late_read_points = Fact[dict[str, dict[str, Any]] | None](
        _of_type(dict[str, dict[str, Any]]), "an object of objects", is_only_shown=True
    )
    """By epoch: the same of earlier epochs whose checkpoints could not be updated."""
    shown_as = Fact[str | None](_text, "a text")
    """The timeline under which sinks show an epoch that was rolled back to."""
    abandoned = Fact[list[str] | None](_texts, "a list of texts")
    """Timelines that rollbacks have given up."""
    leaves = Fact[list[str] | None](_texts, "a list of texts")
    """The source of each line of Spark's offset log."""
    native = Fact[dict[str, Any] | None](_object, "an object")
    """Which query, where and how: of a directory that Spark keeps by itself."""
    shared_objects = Fact[tuple[SharedObject, ...]](
        _of_type(tuple[SharedObject, ...]), "a list of objects with size and SHA-256", absent=()
    )
    """Objects that a restore needs and earlier or later checkpoints may need too."""
    added_bytes = Fact[int](_number, "a number of bytes", absent=0, is_only_shown=True)
    """Bytes of shared objects that were stored for it; it may name others too."""
    restore_bytes = Fact[int | None](_number, "a number of bytes", is_only_shown=True)
    """Bytes of all files that a restore writes."""
    gaps = Fact[tuple[dict[str, Any], ...]](
        _of_type(tuple[dict[str, Any], ...]), "a list of objects", absent=()
    )
    """Where sources went on elsewhere because the rows that came next were gone; empty for none."""
    target_names = Fact[dict[str, str] | None](_of_type(dict[str, str]), "an object of texts")
    """By output that was renamed: the name under which its target knows it."""
    output_digests = Fact[dict[str, OutputDigest] | None](
        _of_type(dict[str, OutputDigest]), "an object of digests", is_only_shown=True
    )
    """By sink: how many rows the epoch has, and a digest of which they are."""
    upgrade = Fact[dict[str, Any] | None](_object, "an object", is_only_shown=True)
    """For the first checkpoint of a changed pipeline: from which one it was made, and what became
    of each part."""
    fork = Fact[ForkOrigin | None](_of_type(ForkOrigin), "the origin of a fork")
    """For every checkpoint of a fork: the checkpoint of another store that it was begun from."""
    inputs = Fact[dict[str, SourceInput] | None](
        _of_type(dict[str, SourceInput]), "an object of digests", is_only_shown=True
    )
    """By source: what the epoch has read, the same in every timeline."""
    consumer_group = Fact[str | None](_text, "a text", is_only_shown=True)
    """Kafka's consumer group in which the pipeline stores its offsets."""
    spark_version = Fact[str | None](_text, makes_it_ours=False)
    """The Spark that ran the epoch."""
    source_ids = Fact[dict[str, Any] | None](_object, makes_it_ours=False)
    """By source: the id of each topic or folder."""
    source_servers = Fact[dict[str, str] | None](
        _of_type(dict[str, str]), "an object of texts", is_only_shown=True
    )
    """By source: the servers that Kafka was reached by."""
    source_latest = Fact[dict[str, str] | None](
        _of_type(dict[str, str]), "an object of texts", is_only_shown=True
    )
    """By source: the newest offsets that Kafka had when the epoch was planned, as Spark notes."""
    source_times = Fact[dict[str, dict[str, int]] | None](
        _of_type(dict[str, dict[str, _Time]]), "an object of objects of numbers", is_only_shown=True
    )
    """By source and partition: when the row at the position was written, in ms; where known."""


FACTS: Final[dict[str, Fact[Any]]] = {
    name: fact for name, fact in vars(SeamarkFacts).items() if isinstance(fact, Fact)
}
SEAMARK_FIELDS: Final = frozenset(name for name, fact in FACTS.items() if fact.makes_it_ours)
