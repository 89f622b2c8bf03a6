"""A small, sound sink over local files: what the broken ones are made from."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from seamark.errors import DamageError
from seamark.sinks import Committable, Description, Epoch, ReadPoint, Receipt, Sink
from seamark.sinks.contract import (
    Identity,
    another_lineage,
    gone_on,
    identity_in,
    receipt_of,
    require_given_up,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LocalSink(Sink):
    """One file per attempt, ``staged/{attempt}.json``, renamed to ``shown/{epoch}.json``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staged = root / "staged"
        self.shown = root / "shown"
        self.aside = root / "aside"
        for folder in (self.staged, self.shown, self.aside):
            folder.mkdir(parents=True, exist_ok=True)
        self.last: Receipt | None = None

    def describe(self) -> Description:
        return Description("local", str(self.root))

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        self.last = receipt_of(epoch, attempt)
        with self.place(attempt).open("w") as out:
            out.write(msgspec.json.encode(self.last).decode() + "\n")
            for row in df.toLocalIterator():
                out.write(f"{row.n}\n")

    def prepare(self) -> Committable:
        assert self.last is not None
        kept = Identity(
            self.last.timeline, self.last.epoch, self.last.fingerprint, self.last.attempt
        )
        told: dict[str, Any] = msgspec.to_builtins(kept)
        return told

    def commit(self, committable: Committable) -> None:
        wanted = identity_in(committable, Identity)
        staged, target = self.place(wanted.attempt), self.target(wanted.epoch)
        for _ in range(2):
            if target.exists():
                shown = read_receipt(target)
                if not wanted.is_shown_by(shown):
                    raise another_lineage(shown, wanted, str(target))
                return
            try:
                staged.rename(target)
            except FileNotFoundError:
                continue
            return
        raise DamageError("neither staged nor shown")

    def read_point(self, committable: Committable) -> ReadPoint | None:
        at = {"epoch": identity_in(committable, Identity).epoch}
        return ReadPoint("local", str(self.root), at)

    def abort(self, attempt: str) -> None:
        self.place(attempt).unlink(missing_ok=True)

    def leftovers(self) -> list[str]:
        return sorted(path.stem for path in self.staged.iterdir())

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        with suppress(FileNotFoundError):
            return read_receipt(self.target(epoch))
        return None

    def newest(self) -> Receipt | None:
        epochs = self.epochs()
        return self.committed("", epochs[-1]) if epochs else None

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        seen = {number: self.committed("", number) for number in self.epochs() if number > epoch}
        if shown := [receipt for receipt in seen.values() if receipt is not None]:
            require_given_up(shown[-1], of, str(self.root))
        for number in reversed(seen):
            aside = self.aside / f"{number}-{uuid.uuid4().hex}"
            with suppress(FileNotFoundError):
                self.target(number).rename(aside)
                if (now := read_receipt(aside)) != seen[number]:
                    aside.rename(self.target(number))
                    raise gone_on(now, str(self.root))
        return [*seen]

    def epochs(self) -> list[int]:
        return sorted(int(path.stem) for path in self.shown.iterdir())

    def place(self, attempt: str) -> Path:
        return self.staged / f"{attempt}.json"

    def target(self, epoch: int) -> Path:
        return self.shown / f"{epoch}.json"


def read_receipt(path: Path) -> Receipt:
    return msgspec.json.decode(path.read_text().partition("\n")[0], type=Receipt)


def rows_in(path: Path) -> list[int]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def rows_shown(root: Path) -> Iterable[int]:
    """What a reader of the target sees."""
    return [row for path in sorted(root.glob("shown/*")) for row in rows_in(path)]
