"""The index of a checkpoint's files is believed only where it says what Seamark would write."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from seamark import limits
from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject
from seamark.store.index_parts import check_folders, check_path, decode_index

DATA = b"state"
DIGEST = sha256(DATA).digest()
ALONE = SharedObject("1-" + "a" * 32, len(DATA), DIGEST.hex())
PACK = SharedObject("1-" + "b" * 32, 1000, "cd" * 32)
PATH = "state/0/0/1.delta"


def part(*added: Any, objects: Any = None, **fields: Any) -> bytes:
    names = [ALONE.name, PACK.name] if objects is None else objects
    return msgspec.msgpack.encode({"objects": names, "added": added, "removed": [], **fields})


def entry(path: str = PATH, at: Any = 0, size: Any = 5, digest: Any = DIGEST) -> list[Any]:
    return [path, at, size, digest, at == 1]


def refused(data: bytes, match: str) -> None:
    with pytest.raises(DamageError, match=match):
        decode_index(data, [ALONE, PACK])


@pytest.mark.parametrize(
    "path",
    [
        "metadata",
        "offsets/0",
        "commits/12",
        "sources/0/9.compact",
        "sources/name/deep/er/file",
        "state/0/0/1.delta",
        "state/12/199/left-keyToNumValues/1_ab-cd.changelog",
        "state/0/0/SSTs/000012-uuid.sst",
        "state/0/0/_metadata/schema",
        "state/0/_metadata/v2/0",
        "state/0/_stateSchema/default/0_x",
        "sources/0/größe",
    ],
)
def test_every_file_that_spark_keeps_has_a_good_path(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/x",
        "../x",
        "state/0/0/../../../x",
        "state/0/0/.",
        "state/0/0/",
        "state//0/x",
        "state/0/0/a\0b",
        "state/0/0/a\\b",
        "state",
        "state/0",
        "state/0/x",
        "state/0/x/1.delta",
        "state/0/²/1.delta",
        "state/٣/0/1.delta",
        "state/0/" + "9" * 5000 + "/1.delta",
        "state/0/0/" + "9" * 5000 + ".delta",
        "state/0/0/" + "ä" * 128,
        "sources/" + "a/" * limits.MOST_FOLDERS + "x",
        "state/" + "a/" * 1500 + "x",
        "offsets/x",
        "offsets/",
        "commits/1/x",
        "metadata/x",
        "seamark/index",
        "other",
    ],
)
def test_no_other_path_is_believed(path: str) -> None:
    with pytest.raises(DamageError, match="no working copy"):
        check_path(path)
    refused(part(entry(path)), "no working copy")


def test_a_path_in_a_message_is_short_and_on_one_line() -> None:
    with pytest.raises(DamageError) as error:
        check_path("x\n" * 100_000)
    assert len(error.value.what) < 1000
    assert "\n" not in error.value.what


def test_what_seamark_writes_is_read() -> None:
    data = part(entry(), entry("metadata", 1), entry("offsets/1", 1), operators=["0-a", "1-b"])
    decoded, named = decode_index(data, [ALONE, PACK])
    assert [each.path for each in decoded.added] == [PATH, "metadata", "offsets/1"]
    assert named == [ALONE, PACK]


@pytest.mark.parametrize(
    "odd",
    [
        entry(size=-1),
        entry(size=-(10**15)),
        entry(size=2**64 - 1),
        entry(size=1.5),
        entry(at=-1),
        entry(at=2),
        entry(digest=b""),
        entry(digest=b"x" * 33),
        entry(digest=None),
        entry()[:-1],
        "text",
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_damage(odd: Any) -> None:
    refused(part(odd), "cannot be read")


@pytest.mark.parametrize("data", [b"", b"x", b"\xc1", b"\x91" * 100_000, part(objects=[1])])
def test_bytes_that_are_no_index_are_damage(data: bytes) -> None:
    refused(data, "cannot be read")


def test_a_file_has_the_size_and_hash_of_the_object_that_it_is() -> None:
    refused(part(entry(size=4)), "another size")
    refused(part(entry(digest=bytes(32))), "another size or SHA-256")


def test_an_object_is_one_file_unless_it_is_a_pack() -> None:
    refused(part(entry(), entry("state/0/0/2.delta")), "alone is several files")
    many = [entry(f"state/{number}/0/1.delta") for number in range(limits.MOST_COPIES + 1)]
    refused(part(*many), "alone is several files")
    refused(part(entry(), [*entry("state/0/0/2.delta", 0)[:-1], True]), "alone is several files")
    refused(part(entry(), entry()), "twice")


def test_a_file_in_a_pack_is_not_very_much_larger_than_the_pack() -> None:
    refused(part(entry(at=1, size=1 << 40)), "than its pack can hold")


@pytest.mark.parametrize("name", ["../owner.json", "x\nerror: forged", "n" * 200_000, ""])
def test_only_names_of_objects_are_believed(name: str) -> None:
    odd = SharedObject(name, 5, DIGEST.hex())
    with pytest.raises(DamageError, match="cannot be a shared object") as error:
        decode_index(part(entry(), objects=[name]), [odd])
    assert len(error.value.what) < 500
    assert "\n" not in error.value.what


def test_an_object_that_the_manifest_does_not_name_is_damage() -> None:
    refused(part(entry(), objects=["1-" + "c" * 32]), "its manifest does not")


def test_operators_are_few_and_have_short_names() -> None:
    refused(part(operators=[f"{n}-x" for n in range(limits.MOST_OPERATORS + 1)]), "operators")
    refused(part(operators=["0-" + "x" * 1000]), "no operator")
    refused(part(operators=["../x"]), "no operator")


def test_no_file_is_a_folder_of_others() -> None:
    check_folders(["state/0/0/a", "state/0/0/ab", "metadata"])
    for other in ("state/0/0/a/b", "state/0/0/a/b/c/d"):
        with pytest.raises(DamageError, match="as a file and as a folder"):
            check_folders(["state/0/0/a", other, "metadata"])


@pytest.mark.parametrize(
    ("removed", "why"),
    [([""], "belongs to no working copy"), (["../x"], "belongs"), ([PATH, PATH], "twice")],
)
def test_only_files_of_a_directory_are_removed_and_each_once(removed: list[str], why: str) -> None:
    refused(part(removed=removed), why)
