"""Finding files in a pack that was read: by their paths, or by what they hold.

A pack keeps each file under the path that it had when it was stored. When a changed pipeline goes
on, an operator's files get other paths, and only their size and SHA-256 tell which they are.

Tests: ``tests/capture/test_packed_files.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from seamark.capture.file_index import StoredFile
from seamark.errors import DamageError
from seamark.state.pack import PackedEntry


def entries_of(
    files: Mapping[str, StoredFile], entries: Iterable[PackedEntry]
) -> Iterator[tuple[str, PackedEntry]]:
    """The entry of each file; :class:`DamageError` when the pack does not hold one of them."""
    by_path: dict[str, PackedEntry] = {}
    by_content: dict[tuple[bytes, int], PackedEntry] = {}
    for entry in entries:
        by_path[entry.key] = entry
        by_content[entry.sha256, entry.size] = entry
    for path, known in files.items():
        content = (known.sha256, known.size)
        found = by_path.get(path)
        if found is None or (found.sha256, found.size) != content:
            found = by_content.get(content)
        if found is None:
            raise DamageError(f"{path!r} is not in the pack that the index names")
        yield path, found
