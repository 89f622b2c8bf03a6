"""Whether the sources still have what a checkpoint goes on from.

Tests: ``tests/pipeline/test_reanchor.py``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.errors import InvalidInputError, PositionUnavailable
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.settings import Policy
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.sources.patience import Stopping
from seamark.sources.position_looks import PositionLook
from seamark.spark.failures import unknown_topics
from seamark.spark.kafka.gaps import LostByLine, planned_gap, position_error, version_of_topic
from seamark.spark.kafka.positions import (
    Loss,
    LostPosition,
    Topics,
    lost_positions,
    parsed,
)
from seamark.spark.kafka.recorded_positions import recorded_lines
from seamark.spark.plans.lossy_options import may_lose_of
from seamark.spark.source_gaps import Anchor, Gap, Move

ErrorByLine = Mapping[str, PositionUnavailable | None]
"""By each line of a source: why it cannot go on there, if it cannot."""


@dataclass(frozen=True)
class PositionCheck:
    """What follows from comparing the positions of a checkpoint with what the sources have."""

    lost: tuple[LostPosition, ...] = ()
    """Positions that nothing allows to be left behind."""
    gaps: tuple[Gap, ...] = ()
    """What the start has to move, and record."""
    gone: PositionUnavailable | None = None
    """The error of the first source other than Kafka that no longer has what comes next."""


def check_positions(
    checkpoint: CheckpointManifest,
    identity: PipelineIdentity,
    policy: Policy,
    reanchor: Mapping[str, Anchor],
) -> PositionCheck:
    """Compare the positions of a checkpoint with the topics that were looked at; ask the others.

    Topics are looked at again before rows are called gone: the checkpoint may be younger than the
    look, and of rows, partitions and topics that were added since.
    """
    lost: list[LostPosition] = []
    gaps: list[Gap] = []
    lost_by_source = _lost_by_source(checkpoint, identity.topics)
    if lost_by_source and identity.topics_again is not None:
        now = {**identity.topics, **identity.topics_again()}
        lost_by_source = _lost_by_source(checkpoint, now)
    for source, by_line in lost_by_source.items():
        found = _distinct(by_line)
        anchor = reanchor.get(source) or _allowed(source, found, identity, policy)
        # Spark cannot read a source whose options name a topic that is not there
        deleted = {one.topic for one in found}.intersection(identity.absent.get(source, ()))
        if anchor is None or deleted:
            lost += found
        else:
            gaps.append(planned_gap(by_line, anchor))
    gone: list[PositionUnavailable] = []
    for look, errors in _gone_by_source(checkpoint, identity.looks):
        if not any(errors.values()):
            continue
        if look.name in reanchor:
            gaps.append(_table_gap(look, errors, reanchor[look.name]))
        else:
            gone += [error for error in errors.values() if error is not None]
    return PositionCheck(tuple(lost), tuple(gaps), gone[0] if gone else None)


def _gone_by_source(
    checkpoint: CheckpointManifest, looks: Mapping[str, PositionLook]
) -> Iterator[tuple[PositionLook, ErrorByLine]]:
    """What each source other than Kafka answers about its lines."""
    for source, lines in recorded_lines(checkpoint).items():
        if source in looks:
            yield looks[source], {line: _gone(looks[source], line) for line in lines}


def _gone(look: PositionLook, line: str) -> PositionUnavailable | None:
    try:
        look.check(line)
    except PositionUnavailable as error:
        return error
    return None


def _table_gap(look: PositionLook, errors: ErrorByLine, anchor: Anchor) -> Gap:
    """The gap that moves the lines of a table whose rows are gone, and those alone."""
    if isinstance(anchor, Mapping):
        raise _needs_version(look.name)
    moved, moves = {}, []
    for line, error in errors.items():
        moved[line] = line
        if error is not None:
            moved[line], to = look.moved(line, anchor)
            why = error.what.removeprefix(f"source {look.name!r}: ")
            moves.append(Move(wanted=to.wanted, goes_on=to.goes_on, rows=None, loss=why))
    return Gap(source=look.name, lines=moved, moves=tuple(dict.fromkeys(moves)))


def _needs_version(source: str) -> InvalidInputError:
    return InvalidInputError(
        f"reanchor of source {source!r} names offsets, and it does not read from Kafka",
        hint=f"For example reanchor={{{source!r}: 'earliest'}}, 'latest', or the number of a "
        "version or snapshot.",
    )


def require_positions(checkpoint: CheckpointManifest, topics: Mapping[str, Topics]) -> None:
    """:class:`PositionUnavailable` when a position of a checkpoint is lost, whatever is allowed.

    Only a start may go on elsewhere, because it records that.
    """
    by_source = _lost_by_source(checkpoint, topics)
    if lost := [one for by_line in by_source.values() for one in _distinct(by_line)]:
        raise lost_error(checkpoint, lost)


def require_tables(
    checkpoint: CheckpointManifest, looks: Mapping[str, PositionLook], is_stopping: Stopping
) -> None:
    """The same for sources other than Kafka; each is waited for as long as its look says."""
    for source, lines in recorded_lines(checkpoint).items():
        for line in lines if source in looks else ():
            looks[source].check(line, is_stopping)


def require_topics(identity: PipelineIdentity) -> None:
    """:class:`SourceUnavailableError` for a topic that the options name and Kafka lacks."""
    for source, absent in identity.absent.items():
        raise unknown_topics(absent, {source: identity.addresses.get(source, "")})


def lost_error(checkpoint: CheckpointManifest, lost: Sequence[LostPosition]) -> PositionUnavailable:
    """The error for positions of a checkpoint that are lost."""
    lines = recorded_lines(checkpoint).items()
    return position_error(lost, {name: "\n".join(own) for name, own in lines})


def _lost_by_source(
    checkpoint: CheckpointManifest, topics: Mapping[str, Topics]
) -> dict[str, LostByLine]:
    """What each source has lost, by the lines of its leaves, as far as it was looked at."""
    found: dict[str, LostByLine] = {}
    for source, lines in recorded_lines(checkpoint).items():
        ids = (checkpoint.source_ids or {}).get(source)
        before = ids if isinstance(ids, dict) else {}
        offsets = {line: at for line in lines if (at := parsed(line)) is not None}
        if source not in topics:
            continue
        by_line = {
            line: lost_positions(source, at, topics[source], before) for line, at in offsets.items()
        }
        if any(by_line.values()):
            found[source] = by_line
    return found


def _distinct(by_line: LostByLine) -> list[LostPosition]:
    """What is lost, once for leaves that have come to the same place."""
    return list(dict.fromkeys(one for lost in by_line.values() for one in lost))


def _allowed(
    source: str, lost: Sequence[LostPosition], identity: PipelineIdentity, policy: Policy
) -> Literal["earliest", "stay"] | None:
    """Where a source may go on by what the user has allowed before; None for nowhere."""
    losses = {one.loss for one in lost}
    described = identity.structure.get("sources", {}).get(source)
    if "failOnDataLoss" in may_lose_of(described) and not losses & {Loss.AHEAD, Loss.OTHER_TOPIC}:
        return "earliest"  # what Spark would do, without a word
    in_range = all(
        one.ends is not None and one.ends.earliest <= one.wanted <= one.ends.latest for one in lost
    )
    return "stay" if policy == "warn" and losses == {Loss.OTHER_TOPIC} and in_range else None


def require_known_sources(reanchor: Mapping[str, Anchor], sources: Sequence[str]) -> None:
    """:class:`InvalidInputError` for a source that the pipeline does not have."""
    if unknown := sorted(set(reanchor).difference(sources)):
        raise InvalidInputError(
            f"reanchor names {unknown[0]!r}, which is not a source of the pipeline",
            hint=f"Its sources are: {', '.join(sources)}.",
        )


def require_fitting_anchors(
    reanchor: Mapping[str, Anchor], kafka: Container[str], others: Container[str]
) -> None:
    """:class:`InvalidInputError` for offsets of a table, or a version of a topic."""
    for source, anchor in reanchor.items():
        if source in kafka and isinstance(anchor, int):
            raise version_of_topic(source)
        if source in others and isinstance(anchor, Mapping):
            raise _needs_version(source)
