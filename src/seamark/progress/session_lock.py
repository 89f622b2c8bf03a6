"""Takes turns: a ledger has one session at a time.

Tests: ``tests/progress/test_threads.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark._common.logs import logger_named
from seamark.errors import RefusedError
from seamark.progress.ledger import Turn

if TYPE_CHECKING:
    from seamark.progress.session import Session

log = logger_named("seamark.progress")

_LOOK: Final = 0.5
_PATIENCE: Final = 20
"""Looks before it is said what is waited for."""


@contextmanager
def take_turn(turn: Turn) -> Iterator[None]:
    """Wait until no session is open; nobody else starts one inside this block.

    A session whose thread has died without ending it is rolled back. :class:`RefusedError` when
    this thread would wait for itself.
    """
    looks = 0
    with turn.changed:
        while (session := turn.session) is not None:
            if session.thread is threading.current_thread():
                raise RefusedError(
                    "this thread has a session through another handle of the same store",
                    where=session.store.url,
                    hint="Commit or roll it back first, or use one handle.",
                )
            if not session.thread.is_alive():
                log.warning("a thread has died in a session of %s", session.store.url)
                session.end()
                turn.session = None
                break
            looks += 1
            if looks == _PATIENCE:
                holder, url = session.thread.name, session.store.url
                log.warning("still waiting for the session that thread %s has in %s", holder, url)
            del session  # it ends with its handle, which may be dropped in the meantime
            turn.changed.wait(_LOOK)
        yield


def give_up_turn(turn: Turn, session: Session) -> None:
    """Let the next one in."""
    with turn.changed:
        if turn.session is session:
            turn.session = None
            turn.changed.notify_all()
