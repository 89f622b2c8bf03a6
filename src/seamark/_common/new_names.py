"""New names on a disk: the folder of a store, and the second name of a file.

Tests: ``tests/store/test_taking_over_bytes.py``.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from seamark._common.files import ABSENT, make_folder, sync_folder

NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What a file system says that has no hard links, or no more of them for a file."""
_NOT_LINKED: Final = (*NO_LINKS, *ABSENT, errno.EXDEV, errno.EACCES)


def make_root(root: str) -> None:
    """Make a folder and those above it, durably, as far as those above are ours to open."""
    folders = [root]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    for folder in reversed(folders[:-1]):
        if not os.path.isdir(folder):
            make_folder(folder, 0o755)
            continue
        with suppress(OSError):  # not ours, and perhaps not readable
            sync_folder(os.path.dirname(folder))


def link_file(there: str, path: str) -> bool:
    """Give a regular file a second name; False where that cannot be, as on another disk.

    The new name is not durable yet. One that is taken is left as it is, and counts as given.
    """
    try:
        if not stat.S_ISREG(os.stat(there, follow_symlinks=False).st_mode):
            return False
        os.link(there, path, follow_symlinks=False)
    except FileExistsError:
        return True
    except OSError as error:
        if error.errno not in _NOT_LINKED:
            raise
        return False
    return True
