"""Nothing that lies in a directory makes an inspection fall over."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from seamark.checkpoint_dir.state_files import needed_ssts
from seamark.errors import DamageError, SeamarkError
from tests.checkpoint_dir.support.directories import source_entry
from tests.native.support.inspected import (
    Make,
    both,
    delta,
    describe,
    looked_at,
    make_hdfs,
    make_rocksdb,
    offsets,
    put,
)

_BIG = "9" * 18
HOSTILE: dict[str, Make] = {
    "huge batch": put(f"offsets/{_BIG}", offsets(1)),
    "huge commit": put(f"commits/{_BIG}", "v1\n{}"),
    "larger than any number": put(f"offsets/{'9' * 200}", offsets(1)),
    "digits of another script": put("state/²/0/1.delta", b"x"),
    "huge version": put(f"state/0/0/{_BIG}.snapshot", delta({})),
    "huge operator": put(f"state/{_BIG}/0/1.delta", delta({})),
    "huge partition": put(f"state/0/{_BIG}/1.delta", delta({})),
    "huge source entry": put(f"sources/0/{_BIG}", source_entry(1)),
    "huge compaction": put(f"sources/0/{_BIG}.compact", source_entry(1)),
    "huge offset": put("offsets/7", offsets(int(_BIG))),
    "partitions without end": lambda root: describe(root, 0, 10**15),
    "no partition": lambda root: describe(root, 0, 0),
    "deep metadata": put("offsets/7", "v1\n" + "[" * 200_000),
    "deep offset": put("offsets/7", offsets(1, "[" * 200_000)),
    "deep commit": put("commits/7", "v1\n" + '{"a":' * 200_000),
    "endless watermark": put("commits/7", 'v1\n{"nextBatchWatermarkMs":1e999}'),
    "ids that are none": put("commits/7", 'v2\n{"stateUniqueIds":{"0":[1,null]}}'),
    "ids of nothing": put("commits/7", 'v2\n{"stateUniqueIds":{"0":[]}}'),
    "settings that are none": put(
        "offsets/7", 'v1\n{"conf":{"spark.sql.shuffle.partitions":[]}}\n-'
    ),
    "garbage": put("offsets/7", bytes(range(256)) * 50),
    "a version with zeros before it": put("state/0/0/09.delta", delta({})),
    "a version in other digits": put("state/0/0/\u0669.delta", delta({})),
    "an operator far away": put("state/900/0/1.delta", delta({})),
    "garbage zip": put("state/0/0/8.zip", b"PK\x03\x04" + bytes(100)),
    "garbage delta": put("state/0/0/8.delta", b"LZ4Block" + b"\xff" * 40),
    "a folder for a file": lambda root: (root / "offsets/8/8").mkdir(parents=True),
    "a folder for an entry": put("sources/0/9/9", b"x"),
    "files where folders should be": both(put("state/7", b"x"), put("sources/7", b"x")),
    "control characters": put("state/0/0/.\x1b[31m\n.tmp", b"x"),
    "nested": put("/".join(["deep"] * 60), b"x"),
    "a loop of links": lambda root: (root / "loop").symlink_to(root),
    "a link to nothing": lambda root: (root / "offsets/9").symlink_to(root / "nothing"),
    "a long compaction": put(
        "sources/0/7.compact",
        "v1\n"
        + "\n".join(f'{{"path":"/{n}","timestamp":1,"batchId":{n % 8}}}' for n in range(100_000)),
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("read_data", [False, True])
def test_nothing_in_a_directory_makes_an_inspection_fall_over(
    kind: str, read_data: bool, tmp_path: Path
) -> None:
    root = make_hdfs(tmp_path / "ck")
    HOSTILE[kind](root)
    try:
        found = looked_at(root, read_data=read_data)
    except SeamarkError:
        assert kind in ("a loop of links", "a link to nothing")
    else:
        assert all(f.message.isprintable() and f.path.isprintable() for f in found.findings)


def _bomb(member: str, *, claims: int | None = None) -> bytes:
    """A small archive that unpacks to 96 MiB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        if member != "metadata":
            archive.writestr("metadata", 'v1\n{"sstFiles":[]}')
        archive.writestr(member, b"v1\n" + bytes(96 << 20))
    data = bytearray(out.getvalue())
    if claims is not None:
        at = data.rindex(b"PK\x01\x02") + 24
        data[at : at + 4] = claims.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("member", ["metadata", "MANIFEST-1"])
@pytest.mark.parametrize("claims", [None, 1000])
def test_a_snapshot_that_unpacks_to_far_more_is_never_held_in_memory(
    member: str, claims: int | None, tmp_path: Path
) -> None:
    make_rocksdb(tmp_path)
    bomb = _bomb(member, claims=claims)
    put("state/0/0/3.zip", bomb)(tmp_path)
    tracemalloc.start()
    try:
        found = looked_at(tmp_path, read_data=True)
        with suppress(DamageError):
            needed_ssts(bomb)
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()
    assert {str(finding.code) for finding in found.findings} == {"zip-unreadable"}


def test_metadata_without_a_bottom_is_no_snapshot() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("metadata", "v1\n" + "[" * 200_000)
    with pytest.raises(DamageError):
        needed_ssts(out.getvalue())
