"""``seamark doctor`` finds bytes that are missing, and bytes that are paid for and not needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from seamark._common.text import size_text
from seamark.blobs.object_store import ObjectBlobs
from seamark.blobs.unfinished_uploads import Bucket
from seamark.capture.checkpoint_contents import Chain, Sizes, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore, open_store
from seamark.store.index_parts import LOG
from tests.cli.support.running import Cli, options_of
from tests.support.servers import ObjectServer

HOURS = 3 * 3600

ENDLESS = """
import json, sys, time
from seamark.store import open_store

def pieces():
    for _ in range(12):
        yield bytes(4 << 20)
    while True:
        time.sleep(1)

store = open_store(sys.argv[1], storage_options=json.loads(sys.argv[2]) or None)
store.claim()
store.shared_objects.write(pieces())
"""
"""A writer that never comes to the end of a large object."""


def killed_writer(url: str, options: Mapping[str, Any], has_begun: Callable[[], bool]) -> None:
    """Have a writer killed in the middle of an object."""
    command = [sys.executable, "-c", ENDLESS, url, json.dumps(dict(options))]
    writer = subprocess.Popen(command)
    try:
        while not has_begun():
            assert writer.poll() is None
            time.sleep(0.05)
    finally:
        writer.kill()
        writer.wait()


def checks_of(document: Any) -> dict[str, Any]:
    return {each["name"]: each for each in document["checks"]}


def save(
    store: CheckpointStore,
    number: int,
    index: FileIndex,
    files: Mapping[str, bytes],
    removed: frozenset[str] = frozenset(),
    **fields: Any,
) -> FileIndex:
    """Save a checkpoint as an epoch does, with files that travel in one pack."""
    captured = Captured(
        files={LOG: {f"offsets/{number}": b"v1"}, "0-stateStoreSave": dict(files)},
        is_full=number == 1,
        removed=removed,
    )
    placed = place(captured, Sizes(inline_operator=1 << 10), store.shared_objects, index)
    store.save_with_state(
        CheckpointManifest.new(
            number,
            number,
            operator_states=placed.operator_states,
            is_incremental=number > 1,
            parent_id=number - 1 if number > 1 else None,
            shared_objects=[list(each) for each in placed.shared_objects] or None,
            added_bytes=placed.added_bytes,
            restore_bytes=placed.restore_size,
            **fields,
        ),
        placed.chunks,
    )
    return index.after(removed, placed.files, full=number == 1)


def delta(partition: int, version: int) -> str:
    return f"state/0/{partition}/{version}.delta"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two checkpoints, each with a pack of its own."""
    with open_store(tmp_path / "store") as made:
        made.claim(pipeline="orders")
        index = save(made, 1, FileIndex(), {delta(p, 1): os.urandom(50_000) for p in range(10)})
        save(made, 2, index, {delta(p, 2): os.urandom(5_000) for p in range(10)})
    return tmp_path / "store"


def objects_in(store: Path) -> list[Path]:
    return sorted((store / "shared").iterdir(), key=lambda path: path.stat().st_size)


def age(path: Path, seconds: float = HOURS) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_sound_store_has_nothing_to_say_about_its_space(cli: Cli, store: Path) -> None:
    found = checks_of(cli.document("doctor", store))
    for name in ("all checkpoints", "shared objects", "packs", "unfinished uploads", "leftovers"):
        assert found[name]["verdict"] == "ok", found[name]
    assert "2 shared objects" in found["all checkpoints"]["found"]


def test_a_lost_object_of_an_older_checkpoint_is_damage(cli: Cli, tmp_path: Path) -> None:
    """The newest one is whole and does not need it, so nothing else would notice."""
    with open_store(tmp_path / "store") as made:
        made.claim(pipeline="orders")
        save(made, 1, FileIndex(), {delta(p, 1): os.urandom(50_000) for p in range(10)})
        full = CheckpointManifest.new(2, 2)
        made.save(full)
    objects_in(tmp_path / "store")[0].unlink()
    found = checks_of(cli.document("doctor", tmp_path / "store", code=3))
    assert found["newest checkpoint"]["verdict"] == "ok"
    assert found["all checkpoints"]["verdict"] == "failed"
    assert found["all checkpoints"]["found"].startswith("1: shared/")


def test_objects_that_nobody_names_are_counted_with_their_size_and_age(
    cli: Cli, store: Path
) -> None:
    with open_store(store) as opened:
        opened.claim()
        for size in (1000, 2000, 3000):
            opened.shared_objects.write([os.urandom(size)])
    small = [path for path in objects_in(store) if path.stat().st_size in (1000, 2000)]
    for path in small:
        age(path)
    found = checks_of(cli.document("doctor", store))["shared objects"]
    assert found["verdict"] == "warning"
    assert found["found"] == "2 that no checkpoint names, 3 KiB, the oldest 3 h ago"
    assert "seamark gc STORE" in found["advice"]
    assert cli("gc", store, "--yes") == 0
    after = checks_of(cli.document("doctor", store))["shared objects"]
    assert after["verdict"] == "ok"
    assert after["found"].startswith("1, 3 KiB, are so new")


@pytest.mark.parametrize(
    ("native", "remedy"), [(None, "A running pipeline"), ({"query_id": "q"}, "--full")]
)
def test_packs_of_which_little_is_needed_are_counted_in_bytes(
    cli: Cli, store: Path, native: dict[str, str] | None, remedy: str
) -> None:
    with open_store(store) as opened:
        opened.claim()
        manifest = opened.load_by_id(2)
        assert manifest is not None
        index = Chain.load(opened, manifest).index
        assert index is not None
        gone = frozenset(delta(p, 1) for p in range(1, 10))
        new = {delta(p, 3): os.urandom(5_000) for p in range(10)}
        save(opened, 3, index, new, gone, native=native)
    found = checks_of(cli.document("doctor", store))["packs"]
    assert found["verdict"] == "warning"
    size = objects_in(store)[-1].stat().st_size
    dead = f"{size_text(size - 50_000)} of {size_text(size)} dead"
    assert found["found"].endswith(f"1 mostly dead, {dead}")
    assert remedy in found["advice"]


def test_a_killed_writer_leaves_files_that_are_found(cli: Cli, store: Path) -> None:
    def temporary() -> list[Path]:
        return [path for path in store.glob("tmp/*") if path.stat().st_size >= 48 << 20]

    killed_writer(str(store), {}, lambda: bool(temporary()))
    for path in temporary():
        age(path)
    found = checks_of(cli.document("doctor", store))["leftovers"]
    assert found["verdict"] == "warning"
    assert found["found"] == "1 of unfinished writes, 48 MiB, older than an hour"
    assert "seamark gc STORE" in found["advice"]


# on S3


def client_of(server: ObjectServer) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        region_name="us-east-1",
    )


def bucket_of(url: str, server: ObjectServer) -> Bucket:
    blobs = ObjectBlobs.open(url, server.storage_options, conditional=True)
    bucket = Bucket.of(blobs)
    assert bucket is not None
    return bucket


@pytest.mark.slow
def test_an_upload_of_a_killed_writer_is_found_and_a_lifecycle_rule_is_believed(
    cli: Cli, s3: ObjectServer
) -> None:
    url = s3.new_url("pipelines/orders")
    bucket = bucket_of(url, s3)
    killed_writer(url, s3.storage_options, lambda: bool(bucket.unfinished_uploads()))
    uploads = bucket.unfinished_uploads()
    client_of(s3).create_multipart_upload(Bucket=bucket.name, Key="pipelines/other/object")
    assert [each.key.startswith("pipelines/orders/shared/1-") for each in uploads] == [True]
    found = checks_of(cli.document("doctor", url, *options_of(s3)))["unfinished uploads"]
    assert found["verdict"] == "warning"
    assert found["found"].startswith("1, the oldest ")
    assert "AbortIncompleteMultipartUpload" in found["advice"]
    assert f"--key {uploads[0].key} --upload-id {uploads[0].upload_id}" in found["advice"]
    rule = {
        "ID": "parts", "Status": "Enabled", "Filter": {"Prefix": "pipelines/"},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
    }  # fmt: skip
    client_of(s3).put_bucket_lifecycle_configuration(
        Bucket=bucket.name, LifecycleConfiguration={"Rules": [rule]}
    )
    found = checks_of(cli.document("doctor", url, *options_of(s3)))["unfinished uploads"]
    assert found["verdict"] == "ok"
    assert "lifecycle rule" in found["found"]


def test_a_bucket_without_unfinished_uploads_is_told_apart(cli: Cli, s3: ObjectServer) -> None:
    url = s3.new_url()
    with open_store(url, storage_options=s3.storage_options) as made:
        made.claim()
        save(made, 1, FileIndex(), {delta(0, 1): os.urandom(50_000)})
    found = checks_of(cli.document("doctor", url, *options_of(s3)))["unfinished uploads"]
    assert (found["verdict"], found["found"]) == ("ok", "none is older than an hour")


@pytest.mark.parametrize("style", [False, True])
@pytest.mark.parametrize("token", [None, "a token"])
def test_the_question_is_signed_as_amazon_demands(style: bool, token: str | None) -> None:
    """The servers of the tests accept any signature."""
    from botocore.auth import S3SigV4QueryAuth  # type: ignore[import-untyped]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
    from botocore.credentials import Credentials  # type: ignore[import-untyped]

    options: dict[str, Any] = {
        "access_key_id": "AKIA", "secret_access_key": "s/+e", "region": "eu-west-1",
        "virtual_hosted_style_request": style,
    } | ({"session_token": token} if token else {})  # fmt: skip
    blobs = ObjectBlobs.open("s3://my-bucket/some/prefix", options, conditional=True)
    bucket = Bucket.of(blobs)
    assert bucket is not None
    signed = urlsplit(bucket._signed("uploads=&prefix=some%2Fprefix%2F&key-marker=a+b%2Bc"))
    given = dict(parse_qsl(signed.query, keep_blank_values=True))
    own = {name: value for name, value in given.items() if not name.startswith("X-Amz-")}
    assert own == {
        "uploads": "", "prefix": "some/prefix/", "key-marker": "a b+c", "x-by": "/seamark",
    }  # fmt: skip
    assert (signed.netloc, signed.path) in (
        ("s3.eu-west-1.amazonaws.com", "/my-bucket"),
        ("my-bucket.s3.eu-west-1.amazonaws.com", "/"),
    )
    auth = S3SigV4QueryAuth(Credentials("AKIA", "s/+e", token), "s3", "eu-west-1")
    signature = given.pop("X-Amz-Signature")
    request = AWSRequest("GET", f"https://{signed.netloc}{signed.path}", params=given)
    request.context["timestamp"] = given["X-Amz-Date"]
    canonical = auth.canonical_request(request)
    assert auth.signature(auth.string_to_sign(request, canonical), request) == signature
