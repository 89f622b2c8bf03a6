"""Two names of one file system swapped in one step, which no function of Python's does.

Tests: ``tests/common/test_exchange.py``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Final

_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2  # of renameat2(2)
_SWAP: Final = 2  # of renamex_np(2)
NOT_POSSIBLE: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What a system says that cannot do it, or not on this file system."""


def exchange(one: str, other: str) -> None:
    """Swap what two names stand for. At any moment each name stands for one of the two.

    OSError when one of them is not there; with an errno of :data:`NOT_POSSIBLE` where the system
    or the file system has no such operation.
    """
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = library.renamex_np(first, second, _SWAP)
    elif hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), one, None, other)
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one, None, other)
