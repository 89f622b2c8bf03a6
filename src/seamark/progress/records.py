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
        if len(position) <= MAX_POSITION_BYTES:
            session.stage_checkpoint(source, epoch, position, allow_rewind=True)
        else:
            session.stage_checkpoint(source, epoch, allow_rewind=True)
            session.clear_position(source)
