"""What lies in a checkpoint directory is read as Spark means it, or told as damage."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seamark.errors import DamageError
from tests.checkpoint_dir.support.directories import make_copy

OTHER_DIGITS = ("²", "٣", "１")


def test_names_in_digits_of_another_script_are_none_of_sparks(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "directory", 2)
    folders = [folder.path for folder in copy.store_folders()]
    entries = sorted(copy.source_entries())
    for digit in OTHER_DIGITS:
        copy.write(f"state/{digit}/0/1.delta", b"x")
        copy.write(f"state/0/{digit}/1.delta", b"x")
        for log in ("offsets", "commits", "sources/0", "state/0/_metadata/v2"):
            copy.write(f"{log}/{digit}", b"x")
    assert copy.operator_numbers() == [0]
    assert [folder.path for folder in copy.store_folders()] == folders
    assert (copy.batches("offsets"), copy.batches("commits")) == ([0, 1], [0, 1])
    assert sorted(copy.source_entries()) == entries


@pytest.mark.parametrize(
    "body",
    [
        '{"a":' * 200_000,
        "[]",
        '{"operatorInfo":{"operatorName":"x"},"stateStoreInfo":[]}',
        '{"operatorInfo":{"operatorName":"x"},'
        '"stateStoreInfo":[{"storeName":"default","numPartitions":1e999}]}',
    ],
    ids=["deep", "list", "no store", "endless"],
)
def test_an_operator_that_cannot_be_read_is_damage(body: str, tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "directory", 1)
    copy.write("state/0/_metadata/metadata", f"v1\n{body}".encode())
    with pytest.raises(DamageError, match="stateful operator 0 cannot be read"):
        copy.operators()


@pytest.mark.parametrize("what", ["store", "operator"])
@pytest.mark.parametrize("name", ["../../../../victim", "..", "", "a/b", "/etc/passwd"])
def test_no_name_in_a_description_can_lead_out_of_the_directory(
    tmp_path: Path, name: str, what: str
) -> None:
    copy = make_copy(tmp_path / "ck", 1)
    text = copy.read_text("state/0/_metadata/metadata") or ""
    named = f'"{what}Name": "{name}"'
    changed = re.sub(f'"{what}Name": ?"[^"]*"', named, text)
    assert named in changed != text
    copy.write("state/0/_metadata/metadata", changed.encode())
    with pytest.raises(DamageError, match=f"the {what}'s name"):
        list(copy.store_folders())
