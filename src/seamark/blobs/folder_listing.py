"""The folders of a local disk that hold a file, listed while others write and remove them.

Tests: ``tests/state/test_overtaken_readers.py``.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from seamark._common.files import ABSENT
from seamark._common.retry import TRIES, pruned_too_fast


class _Look(NamedTuple):
    held: list[str]
    lacking: set[str]
    """Folders without the file: it was removed since they were listed, or is not written yet."""


def folders_holding(folder: str, name: str) -> list[str]:
    """Names of the folders in ``folder`` that hold a file called ``name``.

    One that loses its file after it was listed may have been replaced by one that was not. So they
    are listed again until each that lacks it has lacked it the time before too. When none is left
    of those that held it the time before, they are listed once more.
    """
    before = _Look([], set())
    for _ in range(TRIES):
        look = _look(folder, name)
        if look.lacking <= before.lacking and (look.held or not before.held):
            return look.held
        before = look
    raise pruned_too_fast(folder)


def _look(folder: str, name: str) -> _Look:
    look = _Look([], set())
    try:
        names = os.listdir(folder)
    except OSError as error:
        if error.errno in ABSENT:
            return look
        raise
    for entry in names:
        path = f"{folder}/{entry}/{name}"
        if os.access(path, os.F_OK):
            look.held.append(entry)
            continue
        # access() says no for any reason; only 'it is not there' may count
        try:
            os.stat(path)
            look.held.append(entry)
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            if error.errno != errno.ENOTDIR:  # a file between the folders has none to lose
                look.lacking.add(entry)
    return look
