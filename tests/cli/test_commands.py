"""What holds for every command that is pointed at a store."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from seamark import CheckpointManifest, open_store
from seamark._redaction import storage_option_redactor
from seamark.cli.app import run
from seamark.cli.standard_streams import log_lines
from seamark.errors import CheckpointNotFoundError
from seamark.reports.named_checkpoints import load_named
from tests.cli.support.stores import Commands, fill, flip, stored_manifest

READING = {
    "list": ["list", "STORE"],
    "list verified": ["list", "STORE", "--verify"],
    "show": ["show", "STORE", "2"],
    "verify": ["verify", "STORE", "--read-data"],
    "diff": ["diff", "STORE", "1", "2"],
    "recover": ["recover", "STORE", "--explain"],
    "prune": ["prune", "STORE", "--keep", "1"],
    "gc": ["gc", "STORE"],
}
CHANGING = {
    "pin": ["pin", "STORE", "2", "gold"],
    "unpin": ["unpin", "STORE", "gold"],
    "prune --yes": ["prune", "STORE", "--keep", "1", "--yes"],
    "gc --yes": ["gc", "STORE", "--yes"],
}
COMMANDS = READING | CHANGING
NEED_A_CHECKPOINT = {"show", "diff", "pin", "unpin"}
SECRET = "hunter2-hunter2"


def words(name: str, store: object) -> list[str]:
    return [str(store) if word == "STORE" else word for word in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_store_is_no_error_unless_a_checkpoint_was_named(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    code = 4 if name in NEED_A_CHECKPOINT else 0
    seamark(*words(name, "empty"), code=code)
    shown = seamark(*words(name, "empty"), "--json", code=code)
    assert isinstance(json.loads(shown or seamark.err), dict)
    if name in READING:
        assert list(Path("empty").iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_path_and_a_file_are_told(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    seamark(*words(name, "nowhere"), code=4)
    assert "no such directory" in seamark.err
    assert not Path("nowhere").exists()
    seamark(*words(name, "file:///no/where"), code=4)
    Path("letter").write_text("x")
    seamark(*words(name, "letter"), code=4)
    assert "it is a file" in seamark.err
    seamark("--json", *words(name, "nowhere"), code=4)
    assert json.loads(seamark.err)["error"]["exit_code"] == 4


@pytest.mark.parametrize("name", COMMANDS)
def test_one_damaged_checkpoint_keeps_no_command_from_answering(
    seamark: Commands, store: Path, name: str
) -> None:
    seamark("pin", store, 1, "gold")
    flip(stored_manifest(store, 4))
    code = 3 if name in ("verify", "list verified") else 0
    if name == "pin":
        code = 6  # the name is taken by another checkpoint
    seamark(*words(name, store), code=code)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_one_document_and_nothing_else(seamark: Commands, store: Path, name: str) -> None:
    if name == "unpin":
        seamark("pin", store, 1, "gold")
    found = seamark.json(*words(name, store))
    assert found["store"] == str(store.resolve())
    assert seamark.err == ""


def test_a_store_without_permission_proves_nothing() -> None:
    """As another user: for root, everything is permitted."""
    folder = tempfile.mkdtemp()
    try:
        os.chmod(folder, 0o755)
        fill(Path(folder, "store"), 2)
        os.chmod(f"{folder}/store", 0)
        lines = [words(name, f"{folder}/store") for name in COMMANDS]
        # everything is imported by trying it elsewhere: nobody may not read the interpreter
        code = (
            "import contextlib, io, json, os, sys\n"
            "from seamark.cli.app import run\n"
            "lines = json.loads(sys.argv[1])\n"
            "for place in (sys.argv[2], '/no/where'):\n"
            "    for words in lines:\n"
            "        with contextlib.redirect_stdout(io.StringIO()):\n"
            "            with contextlib.redirect_stderr(io.StringIO()):\n"
            "                run([words[0], place, *words[2:]])\n"
            "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
            "print([run(words) for words in lines])\n"
        )
        fill(Path(folder, "other"), 2)
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(lines), f"{folder}/other"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(done.stdout) == [7] * len(COMMANDS), done.stderr
        assert "Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        os.chmod(f"{folder}/store", 0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "options",
    [
        {"any_name": SECRET},
        {"aws_secret_access_key": SECRET, "any_name": "x"},
        # an endpoint where nothing listens, so that no network is asked
        {"endpoint": f"http://127.0.0.1:9/{SECRET}", "allow_http": "true"},
    ],
)
def test_storage_options_appear_nowhere(
    capsys: pytest.CaptureFixture[str], options: dict[str, str]
) -> None:
    given = [w for k, v in options.items() for w in ("--storage-option", f"{k}={v}")]
    for url in ("/no/where", "s3://bucket/store", "nonsense://x"):
        for line in (["list", url, "-vv", *given], [*given, "-vv", "list", url]):
            assert run(line) != 0
            out, err = capsys.readouterr()
            assert "Traceback" in err
            assert SECRET not in out + err


def test_a_storage_option_without_a_value_is_not_repeated(seamark: Commands) -> None:
    seamark("list", "x", "--storage-option", SECRET, code=2)
    assert SECRET not in seamark.err
    assert "NAME=VALUE" in seamark.err


def test_log_lines_go_to_stderr_without_secrets(
    seamark: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("seamark.store")
    with log_lines():
        from seamark.cli.standard_streams import hide_values

        hide_values({"name": SECRET})
        logger.warning("the server said %s", SECRET)
        logger.info("not asked for")
    logger.warning("after the command")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "warning: the server said ***\n"


def test_ordinary_words_are_not_taken_for_secrets() -> None:
    redact = storage_option_redactor(
        {"allow_http": "true", "short": "abc", "region": "check", "other": "path"}
    )
    assert redact("true abc") == "true abc"
    assert redact("a check of a checkpoint") == "a check of a checkpoint"
    assert redact("pathways") == "pathways"
    assert redact("at path: no") == "at ***: no"
    assert storage_option_redactor({"other": "a-longer-value"})("xa-longer-valuey") == "x***y"


def test_quiet_leaves_out_what_to_type_next(seamark: Commands, store: Path) -> None:
    assert "seamark verify" in seamark("show", store, 1)
    assert "seamark verify" not in seamark("-q", "show", store, 1)
    assert "seamark verify" not in seamark("show", store, 1, "--quiet")


def test_the_newest_is_another_one_when_it_was_pruned_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_store("memory://") as store:
        store.save(CheckpointManifest.new(1, epoch=1))
        load_by_id = store.load_by_id
        found = []

        def overtaken(checkpoint_id: int) -> CheckpointManifest | None:
            found.append(checkpoint_id)
            if len(found) == 1:
                store.save(CheckpointManifest.new(2, epoch=2))
                store.prune(1)
            return load_by_id(checkpoint_id)

        monkeypatch.setattr(store, "load_by_id", overtaken)
        assert load_named(store, "latest").checkpoint_id == 2
        with pytest.raises(CheckpointNotFoundError):
            load_named(store, "1")
    assert found == [1, 2, 1]


NEWEST = {
    "show": ["show", "STORE", "latest"],
    "verify": ["verify", "STORE", "latest"],
    "sources": ["sources", "STORE"],
    "diff": ["diff", "STORE", "1", "latest"],
    "rollback": ["rollback", "STORE", "latest"],
    "copy": ["copy", "STORE", "COPY", "latest"],
    "restore": ["spark", "restore", "STORE", "latest", "NEW", "--query-id", "keep"],
}


@pytest.mark.parametrize("name", NEWEST)
def test_a_store_whose_checkpoints_were_all_given_up_is_not_damaged(
    seamark: Commands, tmp_path: Path, name: str
) -> None:
    """As a pipeline that starts over leaves it until its first epoch."""
    with open_store(tmp_path / "STORE") as store:
        store.claim(pipeline="trades")
        for number in (1, 2):
            store.save(CheckpointManifest.new(number, epoch=number))
        store.supersede(1, 2)
    assert "damaged" not in seamark("verify", tmp_path / "STORE")
    asked = [str(tmp_path / word) if word.isupper() else word for word in NEWEST[name]]
    seamark(*asked, code=4)
    assert "all checkpoints of this store were given up" in " ".join(seamark.err.split())
