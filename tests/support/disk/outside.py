"""Where the simulation meets the real `os`: its errors, and its parts that touch no disk."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# Functions of `os` and `os.path` that neither read nor change a file system.
PURE = frozenset(
    """
    abspath basename commonpath commonprefix cpu_count dirname expanduser expandvars fsdecode
    fsencode fspath getcwd getegid getenv geteuid getgid getlogin getpid getppid getuid isabs join
    normcase normpath process_cpu_count relpath sched_getaffinity sched_yield split splitdrive
    splitext splitroot strerror sysconf times uname urandom
    """.split()  # noqa: SIM905
)


def error(code: int, *paths: Path | int) -> OSError:
    """The `OSError` of this errno, of the subclass and with the file names that `os` would give."""
    names: tuple[Any, ...] = paths if len(paths) < 2 else (paths[0], None, paths[1])
    return OSError(code, os.strerror(code), *names)


def from_real_module(module: Any, name: str) -> Any:
    """Pass on constants, classes and pure functions of `module`; refuse all that would do I/O."""
    value = getattr(module, name)
    if name in PURE or isinstance(value, type) or not callable(value):
        return value
    raise AssertionError(
        f"{module.__name__}.{name} is not simulated by SimulatedDisk and would reach the real disk"
    )
