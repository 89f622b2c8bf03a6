"""How far all sources of a pipeline have come at an epoch, as source checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from seamark.progress.checkpoints import MAX_POSITION_BYTES
from seamark.progress.session import Session


def stage_sources(session: Session, epoch: int, positions: Mapping[str, bytes]) -> None:
    """Stage (epoch, position) of every source.

    The pipeline's checkpoints decide what is right, so an epoch may go back. A position that is
    too large to be kept is dropped rather than left at that of an earlier epoch.
    """
    for source, position in positions.items():
        session.stage_checkpoint(source, epoch, kept_position(position), allow_rewind=True)
        if kept_position(position) is None:
            session.clear_position(source)


def kept_position(position: bytes) -> bytes | None:
    """A position as it is kept: None when it is too large."""
    return position if len(position) <= MAX_POSITION_BYTES else None
