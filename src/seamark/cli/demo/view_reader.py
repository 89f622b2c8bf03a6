"""The demo's live view, as another program reads it while the pipeline writes it."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from seamark.cli.demo.pipeline import LATEST
from seamark.cli.demo.trades import TRADES_PER_EPOCH, Trade, latest_trades
from seamark.errors import DamageError, SeamarkError, StoreUnavailableError
from seamark.progress.store import SourceCheckpointStore
from seamark.progress.urls import open_progress, rocksdb_url

_SECONDS: Final = 0.05
_SPACE: Final = "view"


@dataclass(frozen=True)
class Look:
    """What the view shows at one moment."""

    rows: tuple[Trade, ...] = ()

    @property
    def epoch(self) -> int | None:
        """The epoch that it is all of, 0 for an empty view; None when it is half of one."""
        count = max((row.number for row in self.rows), default=-1) + 1
        is_whole = count % TRADES_PER_EPOCH == 0 and {*self.rows} == {*latest_trades(count)}
        return count // TRADES_PER_EPOCH if is_whole else None


@dataclass(frozen=True)
class Watched:
    """What a reader has seen while the pipeline ran, was killed, and ran again."""

    looks: int = 0
    epochs: int = 0
    """How many different ones were seen."""
    newest: int = 0
    wrong: int = 0
    """Looks at half an epoch, or at an older one than before."""

    @property
    def holds(self) -> bool:
        """Whether the view was there, and each look showed a whole epoch."""
        return self.epochs > 0 and self.wrong == 0

    def after(self, look: Look) -> Watched:
        """The same, one look later."""
        epoch = look.epoch
        if epoch is None or epoch < self.newest:
            return Watched(self.looks + 1, self.epochs, self.newest, self.wrong + 1)
        return Watched(self.looks + 1, self.epochs + (epoch > self.newest), epoch, self.wrong)

    def to_dict(self) -> dict[str, int]:
        """The figures as JSON values."""
        return {"looks": self.looks, "epochs": self.epochs, "wrong": self.wrong}


class ViewReader:
    """Looks at the view again and again, in a thread, until the ``with`` ends.

    It begins before there is a view, and holds it open while its writer is dead.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store: SourceCheckpointStore | None = None
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._error: SeamarkError | None = None
        self.newest = Look()
        self.watched = Watched()

    def __enter__(self) -> ViewReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._store is not None:
            self._store.close()

    def look(self) -> Look:
        """What the view shows now; what it showed last while it cannot be opened."""
        with self._turn:
            if self._error is not None:
                raise self._error
            try:
                if self._store is None:
                    self._store = open_view(self._folder)
                self.newest = Look(rows_in_view(self._store))
            except StoreUnavailableError:
                return self.newest  # its writer has not made it yet, or is making it again
            self.watched = self.watched.after(self.newest)
            return self.newest

    def _look_on(self) -> None:
        try:
            while not self._over.wait(_SECONDS):
                self.look()
        except SeamarkError as error:
            self._error = error


def open_view(folder: Path) -> SourceCheckpointStore:
    """Open a demo's view, with or without a running writer."""
    return open_progress(rocksdb_url(folder / LATEST), read_only=True)


def rows_in_view(store: SourceCheckpointStore) -> tuple[Trade, ...]:
    """All rows of the view at one moment; :class:`DamageError` when one is not a trade."""
    return tuple(_trade(key, value) for key, value in store.items(_SPACE))


def _trade(key: bytes, value: bytes) -> Trade:
    try:
        row = json.loads(value)
        since_1970 = datetime.fromisoformat(row["time"]) - datetime.fromtimestamp(0, UTC)
        trade = Trade(**row | {"time": since_1970 // timedelta(milliseconds=1)})
    except (ValueError, TypeError, KeyError) as error:
        raise DamageError(f"the view's row {key!r} cannot be read: {error}") from None
    if trade.symbol.encode() != key:
        raise DamageError(f"the view's row {key!r} is of {trade.symbol}")
    return trade
