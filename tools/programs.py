"""Run the programs that fetch and build what the integration tests need."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence


class Unavailable(Exception):
    """Something cannot be fetched on this machine; the text says why. Tests are skipped with it."""


def run(
    program: str,
    arguments: Sequence[str],
    *,
    title: str,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program to its end. Raises Unavailable if it is missing, fails or takes too long."""
    path = shutil.which(program)
    if path is None:
        raise Unavailable(f"{title} ({program}) is not installed")
    try:
        subprocess.run(
            [path, *arguments],
            check=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{title} did not finish in {seconds:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{title} failed: {error.output.strip()[-300:]}") from error
