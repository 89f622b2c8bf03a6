"""Points of epochs at which a driver waits until the test, in another process, lets it go on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from seamark.pipeline.declaration.settings import OnStep, Step

_SECONDS = 280.0


def pausing_at(base: Path, points: Collection[str]) -> OnStep:
    """Wait at each of these points, such as ``write:before:3``; for the driver."""

    def hook(step: Step, when: str, epoch: int) -> None:
        point = f"{step}:{when}:{epoch}"
        if point in points:
            pause(base, point)

    return hook


def pause(base: Path, point: str) -> None:
    """Wait until the test lets this process go on; it does so once for each point."""
    _paused(base, point).touch()
    while not _released(base, point).exists():
        time.sleep(0.1)


def wait_for_pause(
    base: Path, point: str, driver: subprocess.Popen[bytes], seconds: float = _SECONDS
) -> None:
    """Return when the driver waits at a point; for the test."""
    deadline = time.monotonic() + seconds
    while not _paused(base, point).exists():
        assert driver.poll() is None, f"the driver ended before {point}"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def release(base: Path, point: str) -> None:
    """Let the driver go on; for the test."""
    _released(base, point).touch()


def _paused(base: Path, point: str) -> Path:
    return base / f"paused-{point.replace(':', '-')}"


def _released(base: Path, point: str) -> Path:
    return base / f"released-{point.replace(':', '-')}"
