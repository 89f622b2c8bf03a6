"""The commands that read a place, as they are typed. None of them changes it."""

from __future__ import annotations

from typing import Final

from seamark.cli.app import COMMANDS as ALL
from seamark.cli.spark import COMMANDS as SPARK

STORE: Final = (
    "list {}",
    "list {} --json",
    "show {} latest",
    "show {} latest --json",
    "verify {}",
    "verify {} --read-data",
    "recover {} --explain",
    "diff {} 1 latest",
    "diff {} 1 latest --json",
    "prune {} --keep 1",
    "gc {}",
    "copy {} {out}",
    "fork {} {out}",
    "rollback {} 1",
    "doctor {} --read-only",
    "doctor {} --rebuild-owner",
    "cut {}",
    "cut {} --for spark",
    "audit {}",
    "compare {} {}",
    "estimate {}",
    "sources {}",
    "sources {} --json",
    "sources {} --check --timeout 1s",
    "spark restore {} latest {out}",
    "spark restore {} latest {out} --query-id new",
    "spark restore {} latest {out} --query-id keep --move-input file:///in=file:///other",
    "spark state --from {} --list",
    "bisect {} --test false",
    "page {}",
)

DIRECTORY: Final = (
    "spark inspect {}",
    "spark inspect {} --json",
    "spark inspect {} --read-data",
    "spark snapshot {} {out}",
    "spark rollback {} --to-batch 1 --store {out}",
    "spark rollback {} --to-batch 1 --store {out} --file-sink {}/../sink",
    "spark repartition {} 4 --no-file-sink --store {out}",
    "spark state {} --list",
    "page {}",
)

PROGRESS: Final = (
    "sources {}",
    "sources {} --json",
    "doctor rocksdb://{}",
)

SINK: Final = (
    "spark rollback {}/../hdfs --to-batch 1 --store {out} --file-sink {}",
    "spark restore {}/../snapshots latest {out} --query-id keep --file-sink {}",
    "spark repartition {}/../hdfs 4 --store {out} --file-sink {}",
)

TABLE: Final = ("spark restore {}/../snapshots latest {out} --table {}",)

OF_PLACE: Final = {
    "hdfs": DIRECTORY,
    "rocksdb": DIRECTORY,
    "changelogs": DIRECTORY,
    "schemas": DIRECTORY,
    "sink": SINK,
    "delta": TABLE,
    "iceberg": TABLE,
    "pipeline": STORE,
    "snapshots": STORE,
    "rocksdb-snapshots": STORE,
    "earlier": STORE,
    "laminar": STORE,
    "progress": PROGRESS,
}

NOT_READING: Final = {
    "demo": "reads nothing of anybody's",
    "pin": "reads owner.json as 'list' does, and changes it",
    "unpin": "the same",
    "replay": "runs a program of the user's",
    "ui": "'page' asks for its pages",
    "version": "reads nothing",
    "spark watch": "takes snapshots until it is stopped",
}


def not_tried() -> set[str]:
    """Commands that are in neither list."""
    tried = {" ".join(word for word in line.split()[:2] if "{" not in word)
             for lines in OF_PLACE.values() for line in lines}  # fmt: skip
    known = {name for name in ALL if name != "spark"} | {f"spark {name}" for name in SPARK}
    first = {line.split()[0] for line in tried}
    return {
        name
        for name in known - NOT_READING.keys()
        if name not in tried and (" " in name or name not in first)
    }


def typed(line: str, place: str, out: str) -> list[str]:
    """The words of a command line."""
    return line.replace("{out}", out).replace("{}", place).split()
