"""Putting something else in the place of the operating system, under the file system backend."""

from __future__ import annotations

from typing import Any, Protocol

from seamark._common import file_lock, files, new_names
from seamark.blobs import filesystem, folder_listing


class Patcher(Protocol):
    """pytest's ``monkeypatch``, or anything else that can set an attribute and put it back."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute."""


def mount(patcher: Patcher, os_like: Any, fcntl_like: Any) -> None:
    """Let every call of the backend to ``os`` and ``fcntl`` go to these instead."""
    patcher.setattr(filesystem, "os", os_like)
    patcher.setattr(folder_listing, "os", os_like)
    patcher.setattr(files, "os", os_like)
    patcher.setattr(new_names, "os", os_like)
    patcher.setattr(file_lock, "os", os_like)
    patcher.setattr(file_lock, "fcntl", fcntl_like)
