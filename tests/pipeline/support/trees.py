"""What lies in a folder, to be compared with what lies there later."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

Tree = dict[str, str]
"""By path: what is there, and when it was written."""


def tree_of(*roots: Path) -> Tree:
    """Every file and folder below some roots, with its bytes and its time of change."""
    found: Tree = {}
    for root in roots:
        for folder, _, names in os.walk(root):
            found[folder] = "folder"
            for name in names:
                path = Path(folder, name)
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = f"{digest} {path.stat().st_mtime_ns}"
    return found
