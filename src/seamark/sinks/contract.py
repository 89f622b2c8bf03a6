"""What a sink promises, so that all sinks of a pipeline commit an epoch or none does.

An epoch goes through a sink in three steps. ``stage`` writes the rows where no reader looks,
``prepare`` makes them durable and returns the committable, ``commit`` makes them visible. Between
``prepare`` and ``commit`` the checkpoint is saved, with the committable inside: from then on the
epoch has happened, and the next start finishes it with nothing but the committable.

Tests: ``tests/sinks/test_conformance.py``.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar

import msgspec

from seamark._common.checks import I64_MAX
from seamark._common.text import shortened
from seamark.errors import DamageError, InvalidInputError, LineageError, RefusedError
from seamark.limits import LONGEST_PREFIX
from seamark.sinks.read_point import ReadPoint
from seamark.spark.batch_log import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Committable = dict[str, Any]
"""Small and made of JSON: enough to finish or undo an epoch from another process. No secrets.

A field that is named ``pipeline``, ``sink``, ``timeline``, ``epoch``, ``fingerprint`` or
``attempt`` has what :meth:`Sink.stage` was given under that name. The pipeline compares them when
an epoch is prepared, and with the checkpoint before another process commits it.
"""
T = TypeVar("T", bound="Identity")


class Guarantee(Enum):
    """What a reader of the sink can rely on."""

    EXACTLY_ONCE = "exactly once"
    IDEMPOTENT = "once, if the function is idempotent"
    AT_LEAST_ONCE = "at least once"
    FOR_TRYING_OUT = "for trying things out: gone with the process"

    @property
    def is_transactional(self) -> bool:
        """Whether the sink shows an epoch only together with its checkpoint."""
        return self is Guarantee.EXACTLY_ONCE


@dataclass(frozen=True)
class Epoch:
    """One epoch of one sink, as the pipeline knows it."""

    pipeline: str
    sink: str
    timeline: str
    number: int
    fingerprint: str
    """Digest of the timeline and of what Spark planned for the epoch."""
    plan: Plan
    watermark: int | None = None
    """The watermark that the epoch ran with, in milliseconds; None without one."""
    positions: Mapping[str, bytes] = field(default_factory=dict)
    """How far each source has been read when the epoch is done, as Spark's offset log says."""
    config_hash: int | None = None

    @property
    def key(self) -> str:
        """Names what this sink writes in this epoch, for a target that remembers keys.

        Every try of the epoch has the same one, because every try reads the same rows. Other rows,
        another epoch, sink or timeline (so also the same epoch after a rollback) have another one.
        """
        named = f"{self.pipeline}\n{self.sink}\n{self.fingerprint}"
        return f"{self.timeline}-{self.number}-{hashlib.sha256(named.encode()).hexdigest()[:16]}"


class Receipt(msgspec.Struct, frozen=True):
    """A sink's own record that it shows an epoch."""

    pipeline: str
    sink: str
    timeline: str
    epoch: int
    fingerprint: str
    attempt: str
    plan: Plan | None = None


@dataclass(frozen=True)
class Description:
    """What a sink is, for people and for the configuration's hash. Nothing secret."""

    kind: str
    target: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class Sink(ABC):
    """Where the rows of one output go. One instance serves one output of one pipeline.

    Every method may be called again after a crash at any instruction of an earlier call, also in
    another process.
    """

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    consumes_all: ClassVar[bool] = False
    """True when ``stage`` runs exactly one action that reads every row."""
    shows_at_once: ClassVar[bool] = False
    """True when ``stage`` changes the target itself, so before the checkpoint exists.

    The pipeline then stores what it has planned for an epoch before it calls ``stage``, and every
    later try of the epoch, by whichever process, gets exactly the same rows.
    """
    remembers: ClassVar[bool] = True
    """True when ``committed`` still knows in another process what was committed here."""
    catches_up: ClassVar[bool] = False
    """True when ``commit`` brings a target that has lost earlier epochs up again, or raises."""

    default_staging: str | None = None
    """A folder for rows that wait for their commit, for a sink that needs one and was given none.

    The pipeline sets it before ``open``. It is in the store, so it lasts as long, and whoever
    continues the pipeline finds it. None where the store is no folder of a file system, and where
    tasks run on other machines, which would not see it.
    """

    @abstractmethod
    def describe(self) -> Description:
        """What it is and where it writes."""

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:  # noqa: B027
        """Called first in a run: look at the target, and refuse what cannot work.

        Change nothing here: the start may yet be refused, by another sink or by the store.
        """

    def prepare_target(self) -> None:  # noqa: B027
        """Make what the first epoch needs, such as a missing table, its columns or a topic.

        Called after ``open`` of all sinks, when the store is claimed and nothing refuses the start
        any more. All other questions may be asked before it: a target that is not there shows
        nothing.
        """

    def close(self) -> None:  # noqa: B027
        """Called once after the last epoch of a run: release files and connections."""

    @abstractmethod
    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        """Write the rows under the attempt's token. No reader may see them."""

    @abstractmethod
    def prepare(self) -> Committable:
        """Make what was staged last durable; what another process needs to commit it."""

    @abstractmethod
    def commit(self, committable: Committable) -> None:
        """Show the epoch to readers, once. Doing it again changes nothing.

        :class:`seamark.errors.LineageError` when another epoch is there in its place. An attempt
        that was aborted, by whichever process, shows nothing, since its writer may have been taken
        for dead; a transactional sink raises.
        """

    @abstractmethod
    def abort(self, attempt: str) -> None:
        """Remove what was staged under this token and not committed. Harmless when nothing was.

        A commit of it that another process has begun must fail, or be found here and left alone.
        """

    def leftovers(self) -> list[str]:
        """Tokens of attempts that were staged and not committed."""
        return []

    @abstractmethod
    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        """The record of an epoch that readers see, or None.

        An epoch that is there but of another timeline is returned too: the caller compares.
        """

    def newest(self) -> Receipt | None:
        """The record of the newest epoch that readers see, or None."""
        return None

    def read_point(self, committable: Committable) -> ReadPoint | None:
        """What to read to see exactly the epochs up to this one; None when nothing tells.

        Called after the commit, also by a process that did not commit, and kept in the checkpoint:
        whoever reads the target needs nothing else. Every call for an epoch gives the same. Of the
        committable only the fields of :class:`Identity` are sure to be there. What this raises is
        logged and stops no epoch, so look nothing up that can be remembered from the commit.
        """
        return None

    def require_unpublish_after(self, epoch: int) -> None:
        """:class:`seamark.errors.RefusedError` when :meth:`unpublish_after` would raise it.

        Asked before a pipeline is rolled back; changes nothing.
        """
        if type(self).unpublish_after is Sink.unpublish_after:
            self.unpublish_after(epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        """Take all later epochs away from readers, and keep them aside. Which they were.

        ``of`` is the timeline of the newest epoch that the caller has seen. A driver may hang here
        until its successor has taken the epochs back and shows others in their places. Those stay:
        :class:`seamark.errors.LineageError`. A sink of your own may leave ``of`` out; what it shows
        is then looked at right before the call.

        :class:`seamark.errors.RefusedError` when the sink cannot take anything back.
        """
        raise RefusedError(
            f"a {self.describe().kind} sink cannot take back what it has shown",
            hint="Continue next to what is there, or write to a new target.",
        )


class Identity(msgspec.Struct, frozen=True):
    """Which epoch of which history, written by which attempt."""

    timeline: str
    epoch: Annotated[int, msgspec.Meta(ge=1)]
    fingerprint: str
    attempt: str

    def is_shown_by(self, receipt: Receipt) -> bool:
        """Whether the record is of this very epoch."""
        ours = (self.timeline, self.epoch, self.fingerprint, self.attempt)
        return ours == (receipt.timeline, receipt.epoch, receipt.fingerprint, receipt.attempt)


def identity_in(committable: Committable, kind: type[T]) -> T:
    """The part of a committable that is needed; InvalidInputError when it is not a sink's own."""
    try:
        return msgspec.convert(committable, kind)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"this is not a committable of such a sink: {error}") from None


def foreign_name(committable: Committable, own: Mapping[str, Any]) -> str | None:
    """What a committable says of itself that is not so, as text; None when nothing is. Pure.

    ``own`` is what is right, under the names of :class:`Receipt`'s fields. A committable need not
    have all of them: a sink does not go by what it leaves out.
    """
    for name, ours in own.items():
        theirs = committable.get(name, ours)
        if type(theirs) is not type(ours) or theirs != ours:
            told = shortened(repr(theirs), LONGEST_PREFIX) if isinstance(theirs, str) else theirs
            is_told = isinstance(theirs, str) or (type(theirs) is int and abs(theirs) <= I64_MAX)
            return f"its {name} is {told if is_told else 'something else'}, and not {ours!r}"
    return None


def require_own(committable: Committable, own: Mapping[str, Any], output: str, where: str) -> None:
    """:class:`DamageError` when what a checkpoint keeps for an output is of another one, or epoch.

    Several outputs may write to one target, and a checkpoint may be anybody's.
    """
    if (why := foreign_name(committable, own)) is not None:
        raise DamageError(
            f"what the checkpoint keeps for output {output!r} belongs elsewhere: {why}",
            where=where,
            hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back to "
            "the epoch before.",
        )


def receipt_of(epoch: Epoch, attempt: str) -> Receipt:
    """The record that a sink keeps of an epoch that was written by one attempt."""
    return Receipt(
        pipeline=epoch.pipeline,
        sink=epoch.sink,
        timeline=epoch.timeline,
        epoch=epoch.number,
        fingerprint=epoch.fingerprint,
        attempt=attempt,
        plan=epoch.plan,
    )


def taken_back(sink: Sink, epoch: int, of: str) -> list[int]:
    """Have a sink take back its later epochs, the newest of which was seen to be of ``of``."""
    if takes_timeline(sink):
        return sink.unpublish_after(epoch, of)
    newest = sink.newest()
    if newest is not None and newest.epoch > epoch:
        require_given_up(newest, of, sink.describe().target)
    return sink.unpublish_after(epoch)


def takes_timeline(sink: Sink) -> bool:
    """Whether a sink is told which timeline it takes back; one of a user's need not be."""
    return "of" in inspect.signature(sink.unpublish_after).parameters


class _Shown(Protocol):
    """A record of an epoch, of whichever sink."""

    @property
    def timeline(self) -> str: ...
    @property
    def epoch(self) -> int: ...


def require_given_up(newest: _Shown, of: str | None, where: str) -> None:
    """:class:`LineageError` when the newest epoch is not of the timeline that is taken back."""
    if of not in (None, newest.timeline):
        raise gone_on(newest, where)


def gone_on(now: _Shown, where: str) -> LineageError:
    """The error for an epoch that has come to the place of one that was to be taken back."""
    return LineageError(
        f"epoch {now.epoch} of timeline {now.timeline} has come to the place of one that was to be "
        "taken back, and stays",
        where=where,
        hint="Another driver has taken the store over and goes on. End this one.",
    )


def no_longer_shown(last: Identity, target: str, where: str) -> LineageError:
    """The error for an epoch that a run has shown and that its ``target`` has lost since."""
    return LineageError(
        f"the {target} no longer shows epoch {last.epoch}, which was committed",
        where=where,
        hint="A failover to a server that lacked it, a restore from a backup, or somebody has "
        f"taken it back. The next epoch is not written. Bring the {target} to that epoch, or roll "
        f"the pipeline back to the newest one that the {target} shows.",
    )


def another_lineage(shown: Receipt, expected: Identity, where: str) -> LineageError:
    """The error that says which epoch is shown instead, and what can be done."""
    number = shown.epoch
    take_back = f"unpublish_after({number - 1})"
    if shown.timeline != expected.timeline:
        what = f"of another timeline ({shown.timeline}, not {expected.timeline})"
        hint = (
            "A rollback, reset or fork began a new history. Take back what the old one showed with "
            f"{take_back}, or write to a new target."
        )
    elif shown.fingerprint != expected.fingerprint:
        what = (
            f"made from other input (fingerprint {shown.fingerprint}, not {expected.fingerprint})"
        )
        hint = (
            "Do two pipelines write to one target, or was a store copied and run twice? If this "
            f"pipeline is right, take back the rest with {take_back}."
        )
    else:
        what = f"written by another attempt ({shown.attempt}, not {expected.attempt})"
        hint = (
            "Its input is the same, but its checkpoint is lost. To show what this run has written "
            f"instead, take it back with {take_back} and commit again."
        )
    return LineageError(f"epoch {number} is there already, {what}", where=where, hint=hint)
