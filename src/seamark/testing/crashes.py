"""Crashes at a chosen point of an epoch, to prove that nothing is lost and nothing shown twice.

    Pipeline(..., on_step=crash_at("save", "after", 3))      # inside one process
    Pipeline(..., on_step=kill_at("save", "after", 3, marker))     # a real kill -9

Points are written ``step:when:epoch``, as in ``save:after:3``.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal, NoReturn, cast

from seamark.errors import InvalidInputError
from seamark.pipeline.declaration.settings import Step

When = Literal["before", "after"]


class SimulatedCrash(BaseException):
    """The process counts as dead. No ``except Exception`` cleans up after it."""


@dataclass(frozen=True)
class FailPoint:
    """A point of an epoch; its text is ``step:when:epoch``."""

    step: Step
    when: When
    epoch: int

    @classmethod
    def parse(cls, text: str) -> FailPoint:
        """The point that a text such as ``save:after:3`` names; :class:`InvalidInputError`."""
        try:
            step, when, epoch = text.split(":")
            if when not in ("before", "after"):
                raise ValueError(f"{when!r} is neither 'before' nor 'after'")
            return cls(Step(step), cast(When, when), int(epoch))
        except ValueError as error:
            raise InvalidInputError(
                f"{text!r} is no point of an epoch: {error}", hint="One is 'save:after:3'."
            ) from None

    def __str__(self) -> str:
        return f"{self.step.value}:{self.when}:{self.epoch}"


class CrashOnce:
    """Raises :class:`SimulatedCrash` at a point, the first time that it is reached."""

    def __init__(self, point: FailPoint) -> None:
        self.point = point
        self.reached = False

    def __call__(self, step: Step, when: When, epoch: int) -> None:
        if not self.reached and FailPoint(step, when, epoch) == self.point:
            self.reached = True
            raise SimulatedCrash(f"reached {self.point}")


class KillHere:
    """Ends the own process by SIGKILL at a point, having noted in a file that it got there."""

    def __init__(self, point: FailPoint, marker: str | os.PathLike[str]) -> None:
        self.point = point
        self._marker = marker

    def __call__(self, step: Step, when: When, epoch: int) -> None:
        if FailPoint(step, when, epoch) == self.point:
            die(f"reached {self.point}", self._marker)


def crash_at(step: Step | str, when: When, epoch: int) -> CrashOnce:
    """A hook for ``on_step`` that crashes inside this process; ``reached`` says whether it did."""
    return CrashOnce(FailPoint.parse(f"{step}:{when}:{epoch}"))


def kill_at(step: Step | str, when: When, epoch: int, marker: str | os.PathLike[str]) -> KillHere:
    """A hook for ``on_step`` that kills this process; ``marker`` then says ``reached …``."""
    return KillHere(FailPoint.parse(f"{step}:{when}:{epoch}"), marker)


def die(note: str, marker: str | os.PathLike[str]) -> NoReturn:
    """Write the note durably, then kill this process as ``kill -9`` does."""
    with open(marker, "a", encoding="utf-8") as file:
        file.write(f"{note}\n")
        file.flush()
        os.fsync(file.fileno())
    os.kill(os.getpid(), signal.SIGKILL)
    while True:  # the signal is delivered before this thread runs on for long
        signal.pause()
