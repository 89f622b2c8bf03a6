"""Store, verify and restore every checkpoint directory below a folder, and compare what comes back.

    python -m tools.spark_directories FOLDER [--keep FOLDER]

Made for the directories that Spark's own tests keep, of all its versions since 2.1: those below
``sql/core/src/test/resources`` and ``connector/kafka-0-10-sql/src/test/resources`` of a clone of
apache/spark. Each is copied first, so nothing below FOLDER changes. A restored directory is
compared file by file: all that it has must be in the original, and what it lacks must be something
that no restart reads. That rule is written here a second time, from Spark's names of files, and
not taken from what is tried. With ``--keep`` the copies (``original``) and what was restored
(``restored``) stay, to start queries on both. The exit code is 1 when a directory fails.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from seamark import open_store
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import SeamarkError
from seamark.native.inspect.inspection import Inspection, inspect
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.reports.verification import check_checkpoints

HEAD: Final = (
    "DIRECTORY",
    "SPARK",
    "OPERATORS",
    "FINDINGS",
    "STORED",
    "VERIFIED",
    "RESTORED",
    "REASON",
)
_LOG: Final = re.compile(r"(offsets|commits)/([0-9]+)")
_STATE: Final = re.compile(r"(state/[0-9]+/[0-9]+/(?:.+/)?)([0-9]+)(?:_.+)?\.([a-z]+)")
_SST: Final = re.compile(r"state/[0-9]+/[0-9]+/(?:.+/)?SSTs/.+")
_SCHEMA_ROOT: Final = re.compile(rb'"[^"]*(/state/[0-9]+/_stateSchema/)')
_SNAPSHOTS: Final = ("snapshot", "zip")
_EQUAL: Final = "equal"
_MOST_REASONS: Final = 3

Files = dict[str, bytes]
"""By the path in the directory."""


@dataclass
class Outcome:
    """How far one directory came; a row of the table, filled step by step."""

    name: str
    spark: str = "?"
    operators: str = "?"
    findings: str = "?"
    stored: str = "no"
    verified: str = "no"
    restored: str = "no"
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether the directory came back as it was."""
        return self.restored == _EQUAL


def directories_below(folder: Path) -> list[Path]:
    """The checkpoint directories below a folder: all that have an offset log."""
    return sorted(path.parent for path in folder.glob("**/offsets") if path.is_dir())


def tried(directory: Path, name: str, scratch: Path) -> Outcome:
    """Store, verify and restore a copy of a directory, in a folder that is empty."""
    shutil.copytree(directory, scratch / "original", symlinks=True)
    outcome = Outcome(name)
    try:
        _try(outcome, scratch)
    except SeamarkError as error:
        outcome.reason = error.what
    return outcome


def _try(outcome: Outcome, scratch: Path) -> None:
    original, restored = (LocalDirectory(scratch / name) for name in ("original", "restored"))
    found = inspect(original, read_data=True, pause=0)
    _describe(outcome, found)
    with open_store(scratch / "store") as store:
        taken = take_snapshot(original, store)
        outcome.stored = f"batch {taken.batch}, {taken.files} files"
        (check,) = check_checkpoints(store, [taken.checkpoint_id], read={taken.checkpoint_id})
        if check.status != "ok":
            outcome.reason = "; ".join([check.status, *check.damage])
            return
        outcome.verified = f"{check.bytes_read} B"
        restore_directory(store, taken.checkpoint_id, restored)
    reasons = list(differences(scratch / "original", scratch / "restored", taken.batch))
    known = {(finding.code, finding.path) for finding in found.findings}
    for finding in inspect(restored, read_data=True, pause=0).findings:
        if (finding.code, finding.path) not in known:
            reasons.append(f"{finding.code} in {finding.path}")
    outcome.restored = "differs" if reasons else _EQUAL
    outcome.reason = "; ".join(reasons[:_MOST_REASONS])
    if len(reasons) > _MOST_REASONS:
        outcome.reason += f" and {len(reasons) - _MOST_REASONS} more"


def _describe(outcome: Outcome, found: Inspection) -> None:
    operators = [f"{each.name} x{each.partitions} {each.provider}" for each in found.operators]
    outcome.spark = found.spark or "unknown"
    outcome.operators = ", ".join(operators) or "none"
    outcome.findings = ", ".join(sorted({str(each.code) for each in found.findings})) or "none"


# what a restart needs, by Spark's names of files


def differences(original: Path, restored: Path, batch: int) -> Iterator[str]:
    """How a restored directory is not what the original one was after a batch."""
    before, after = _files(original), _files(restored)
    for path, data in sorted(after.items()):
        if path not in before:
            yield f"{path} is new"
        elif _without_root(path, data) != _without_root(path, before[path]):
            yield f"{path} differs"
    bases = _bases(after, batch + 1)
    for path in sorted(before.keys() - after.keys()):
        if _is_read(path, batch, bases):
            yield f"{path} is missing"
    yield from _holes(after, batch + 1, bases)


def _files(root: Path) -> Files:
    """All files of a directory but hidden ones, which are Hadoop's checksums."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.glob("**/*")
        if path.is_file() and not path.name.startswith(".")
    }


def _without_root(path: str, data: bytes) -> bytes:
    """A description of an operator names its schemas by where the directory is."""
    return _SCHEMA_ROOT.sub(rb'"\1', data) if "/_metadata/" in path else data


def _versions(files: Files, *, snapshots: bool) -> Mapping[str, set[int]]:
    """The versions of each store that there are snapshots, or changes, of."""
    versions: defaultdict[str, set[int]] = defaultdict(set)
    for path in files:
        match = _STATE.fullmatch(path)
        if match is not None and (match[3] in _SNAPSHOTS) == snapshots:
            versions[match[1]].add(int(match[2]))
    return versions


def _bases(files: Files, version: int) -> dict[str, int]:
    """Store → its newest snapshot that is no newer than a version; 0 for an empty state."""
    snapshots, changes = (_versions(files, snapshots=kind) for kind in (True, False))
    return {
        store: max((at for at in snapshots.get(store, ()) if at <= version), default=0)
        for store in snapshots.keys() | changes.keys()
    }


def _is_read(path: str, batch: int, bases: Mapping[str, int]) -> bool:
    """Whether a restart after a batch reads a file that a restored directory lacks."""
    if (log := _LOG.fullmatch(path)) is not None:
        newest = batch + 1 if log[1] == "offsets" else batch
        return batch - 1 <= int(log[2]) <= newest
    if (state := _STATE.fullmatch(path)) is not None:
        store, version, kind = state[1], int(state[2]), state[3]
        if store not in bases:
            return version <= batch + 1
        return kind not in _SNAPSHOTS and bases[store] < version <= batch + 1
    return _SST.fullmatch(path) is None


def _holes(files: Files, version: int, bases: Mapping[str, int]) -> Iterator[str]:
    """What is missing between the snapshots of a directory and a version of its state."""
    changes = _versions(files, snapshots=False)
    for store, base in sorted(bases.items()):
        for missing in sorted(set(range(base + 1, version + 1)) - changes.get(store, set())):
            yield f"{store} lacks the changes of version {missing}"
    for path, data in sorted(files.items()):
        for name, size in sst_sizes(data).items() if path.endswith(".zip") else ():
            sst = f"{path.rpartition('/')[0]}/SSTs/{name}"
            if len(files.get(sst, b"")) != size:
                yield f"{sst} has not the {size} bytes that {path} says"


# the command


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """A table as text; its first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all directories below a folder and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where copies stay; empty")
    asked = parser.parse_args(arguments)
    outcomes = []
    with tempfile.TemporaryDirectory() as temporary:
        for directory in directories_below(asked.folder):
            name = directory.relative_to(asked.folder).as_posix()
            outcomes.append(tried(directory, name, (asked.keep or Path(temporary)) / name))
    if not outcomes:
        print(f"there is no checkpoint directory below {asked.folder}", file=sys.stderr)
        return 2
    equal = sum(outcome.is_equal for outcome in outcomes)
    print(in_columns([HEAD, *(astuple(outcome) for outcome in outcomes)]))
    print(f"{equal} of {len(outcomes)} directories restored equal")
    return 0 if equal == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
