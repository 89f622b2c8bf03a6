"""What a path or URL opens, what it refuses, and that no secret is ever shown."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from seamark._redaction import Redactor
from seamark.errors import InvalidInputError, SeamarkError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.store import open_store
from tests.support.servers import ObjectServer

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"


def test_opening_creates_nothing_and_reading_neither(tmp_path: Path) -> None:
    store = open_store(tmp_path / "new")
    assert store.list_ids() == []
    assert store.load_latest() is None
    assert store.load_by_id(1) is None
    assert store.load_state_data(1) is None
    assert store.recover_latest_validated().fresh_start
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}"])
def test_a_path_and_a_file_url_are_the_same_store(tmp_path: Path, form: str) -> None:
    root = tmp_path / "a b"
    open_store(root).save(CheckpointManifest.new(1, epoch=1))
    url = form.format(str(root).replace(" ", "%20") if "file" in form else root)
    assert open_store(url).list() == [(1, 1)]


def test_two_handles_on_one_path_see_each_other(tmp_path: Path) -> None:
    first, second = open_store(tmp_path), open_store(tmp_path)
    first.save(CheckpointManifest.new(1, epoch=1))
    second.save(CheckpointManifest.new(2, epoch=2))
    assert first.list() == second.list() == [(1, 1), (2, 2)]


def test_a_named_memory_store_is_shared_and_an_unnamed_one_is_not() -> None:
    open_store("memory://shared-by-a-test").save(CheckpointManifest.new(1, epoch=1))
    assert open_store("memory://shared-by-a-test").list_ids() == [1]
    open_store("memory://").save(CheckpointManifest.new(1, epoch=1))
    assert open_store("memory://").list_ids() == []


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("", {}),
        ("ftp://host/path", {}),
        ("hdfs://namenode/path", {}),
        ("file://host/path", {}),
        ("a\x00b", {}),
        ("s3://bucket/x?versionId=1", {}),
        ("s3://bucket/x", {"no_such_option": "1"}),
        ("/some/path", {"region": "eu"}),
        ("memory://x", {"region": "eu"}),
        ("s3://[broken", {}),
        ("s3://bucket/x", {"client_options": "no"}),
        ("s3:/bucket/x", {}),
        ("s3://name@bucket/x", {}),
        ("file:///tmp/%00x", {}),
        ("bad\udcff", {}),
    ],
)
def test_what_cannot_be_opened_is_a_clear_error(url: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(url, storage_options=options)
    assert caught.value.what


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_nothing_is_refused(tmp_path: Path, keep: int) -> None:
    with pytest.raises(InvalidInputError, match="at least one"):
        open_store(tmp_path, keep=keep)
    with pytest.raises(InvalidInputError, match="at least one"):
        open_store(tmp_path).prune(keep)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.save(CheckpointManifest.new(1, epoch=1))
    store.close()
    with pytest.raises(InvalidInputError, match="closed"):
        store.list_ids()
    with pytest.raises(InvalidInputError, match="closed"):
        store.save(CheckpointManifest.new(2, epoch=2))


@pytest.mark.parametrize(
    "url", [f"s3://key:{SECRET.replace('/', '')}@bucket/x", f"az://c/x?sig={SECRET}"]
)
def test_I10_credentials_in_a_url_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(SeamarkError) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    assert SECRET.replace("/", "") not in repr(caught.value)


def test_I10_a_secret_reaches_neither_error_nor_log_nor_store(
    s3: ObjectServer, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        **s3.storage_options,
        "secret_access_key": SECRET,
        "session_token": SECRET[::-1],
    }
    shown: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for url in (s3.new_url("secrets"), "s3://no-such-bucket-anywhere/x"):
            store = open_store(url, storage_options=options)
            shown += [repr(store), store.url]
            try:
                store.claim()
                store.save(CheckpointManifest.new(1, epoch=1))
                shown.append(repr(store.load_by_id(1)))
                shown.append(repr(store.owner()))
            except SeamarkError as error:
                shown += [str(error), repr(error), repr(error.__cause__), repr(error.__context__)]
    everything = "\n".join([*shown, caplog.text])
    assert "no-such-bucket-anywhere" in everything
    assert SECRET not in everything
    assert SECRET[::-1] not in everything


def test_without_credentials_the_error_says_how_to_give_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as nothing_listens:
        port = nothing_listens.getsockname()[1]
    machine = {"metadata_endpoint": f"http://127.0.0.1:{port}", "allow_http": "true"}
    store = open_store("s3://bucket/x", storage_options={"region": "us-east-1", **machine})
    with pytest.raises(StoreUnavailableError) as caught:
        store.list_ids()
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")


def test_I8_a_bucket_that_does_not_exist_is_not_an_empty_store(s3: ObjectServer) -> None:
    store = open_store("s3://no-such-bucket/x", storage_options=s3.storage_options)
    for call in (
        store.load_latest,
        store.list_ids,
        store.recover_latest_validated,
        lambda: store.load_state_data(1),
        lambda: store.save(CheckpointManifest.new(1, epoch=1)),
    ):
        with pytest.raises(StoreUnavailableError, match="does not exist") as caught:
            call()
        assert caught.value.exit_code == 7


def test_I10_what_looks_like_a_secret_is_hidden_in_any_text() -> None:
    redact = Redactor({"aws_secret_access_key": SECRET, "nested": {"sas_token": "abcdefgh"}})
    text = redact(
        "PUT https://user:hunter2@host/x?X-Amz-Signature=deadbeef&sig=feedface"
        f" key={SECRET} abcdefgh"
    )
    for hidden in ("hunter2", "deadbeef", "feedface", SECRET, "abcdefgh"):
        assert hidden not in text
    assert "host/x" in text
