"""Which file system a path is on, as far as Linux says.

Tests: ``tests/store/test_health.py``.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

_MOUNTS: Final = "/proc/self/mountinfo"
_NETWORK: Final = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|ceph|glusterfs|lustre|afs|gpfs|beegfs|davfs|fuse\.(sshfs|s3fs"
    r"|gcsfuse|goofys|rclone|glusterfs|ceph.*|blobfuse2?|juicefs|mount-s3)"
)
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str

    @property
    def is_network(self) -> bool:
        """Whether its bytes are on another machine."""
        return _NETWORK.fullmatch(self.kind) is not None

    @property
    def is_memory(self) -> bool:
        """Whether a restart forgets it."""
        return self.kind in _MEMORY


def mount_of(path: str) -> Mount | None:
    """The file system that a path is on; None where that is unknown."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return find_mount(file.read(), os.path.realpath(path))
    except OSError:
        return None


def find_mount(mounts: str, path: str) -> Mount | None:
    """The mount that a real path is below, from the text of ``mountinfo``. Pure."""
    best: Mount | None = None
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(" - ")
        parts = fields.split(" ")
        if not separator or len(parts) < 5:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), parts[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # the last of several on one point is the one that is seen
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point, rest.split(" ", 1)[0])
    return best
