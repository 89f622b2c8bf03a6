"""Whether what a sink shows is the epoch that a checkpoint means.

Tests: ``tests/sinks/test_conformance.py``.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from seamark.errors import InvalidInputError, LineageError
from seamark.sinks.contract import Committable, Epoch, Receipt

T = TypeVar("T", bound="Identity")


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
        raise InvalidInputError(f"this is no committable of such a sink: {error}") from None


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
