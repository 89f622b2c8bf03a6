"""How a process calls itself in what it writes.

Tests: ``tests/store/test_two_writers.py``.
"""

from __future__ import annotations

import os
import platform

from seamark._version import __version__


def default_writer() -> str:
    """Host, process and version, so that people know whom to look for."""
    return f"{platform.node() or 'unknown'} pid {os.getpid()} seamark {__version__}"
