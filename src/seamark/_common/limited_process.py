"""A process of its own for files of unknown origin, with little memory, time and patience.

A kilobyte can unpack to gigabytes in more ways than can be told beforehand. So what reads such a
file is run where the operating system sets the limits.

Tests: ``tests/common/test_limited_process.py``.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

_FRUGAL: Final = {
    # allocators and threads reserve far more than they use
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKIO_WORKER_THREADS": "2",
    "RAYON_NUM_THREADS": "1",
}
_LONGEST_WORDS: Final = 200


class Answer(NamedTuple):
    """What a process has written."""

    output: bytes
    last_words: str
    """The last line that it wrote about its end; nothing when it was killed."""
    is_late: bool
    """Whether it was killed because it took too long by the clock."""

    @property
    def lines(self) -> list[bytes]:
        """What it has written, without a line that it was killed in."""
        return self.output.split(b"\n")[:-1]


def python_command(module: str) -> list[str]:
    """The command that runs a module of ours in a process of its own.

    The current folder may be one of unknown origin, and is no place to import from (``-P``).
    """
    return [sys.executable, "-P", "-m", module]


def ask_process(
    module: str, question: bytes, *, patience: float | None = None, files: Sequence[int] = ()
) -> Answer:
    """Run a module that reads a question at standard input, and may read some open files.

    It calls :func:`limit_this_process` as soon as it has imported what it needs. What it had
    written when it was killed, or failed, is in the answer. Without ``patience`` it limits its
    time by the clock, too.
    """
    with subprocess.Popen(
        python_command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_FRUGAL},
        pass_fds=files,
    ) as process:
        is_late = False
        try:
            output, said = process.communicate(question, timeout=patience)
        except subprocess.TimeoutExpired:
            is_late = True
            process.kill()
            output, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    is_late = is_late or process.returncode == -signal.SIGALRM
    lines = said.decode(errors="replace").strip().splitlines()
    return Answer(output, lines[-1][:_LONGEST_WORDS] if lines else "", is_late)


def limit_this_process(memory: int, seconds: int, patience: float | None = None) -> None:
    """Allow this process that much memory in all, and that much more time.

    ``seconds`` are those of the processor, ``patience`` those by the clock. It may be called again
    with other limits.
    """
    until = math.ceil(time.process_time()) + seconds
    for kind, limit in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_CPU, until),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(
            kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
        )
    if patience is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(patience, 0.001))
