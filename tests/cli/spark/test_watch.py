"""``seamark spark watch`` keeps a store up with a directory until it is told to end."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamark.store import open_store
from tests.cli.support.running import Cli
from tests.native.support.growing import GrowingDirectory, batches_restored_from
from tests.store.support.counted_reads import CountedBytes

PATIENCE = 280.0


@pytest.fixture
def growing(tmp_path: Path) -> GrowingDirectory:
    return GrowingDirectory(tmp_path / "directory").run_batches(2)


class Watch:
    """A ``seamark spark watch`` as a process of its own."""

    def __init__(self, *args: object) -> None:
        command = [sys.executable, "-m", "seamark", "spark", "watch", *map(str, args)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self, how: signal.Signals) -> tuple[int, list[str], str]:
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.splitlines(), err


@contextmanager
def watch(*args: object) -> Iterator[Watch]:
    started = Watch(*args)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def newest_batch(store: Path) -> int:
    with open_store(store) as opened:
        newest = opened.load_latest()
        return -1 if newest is None else newest.wal_position


def test_once_takes_one_checkpoint_and_ends(
    growing: GrowingDirectory, tmp_path: Path, cli: Cli
) -> None:
    store = tmp_path / "store"
    assert cli("spark", "watch", growing.root, store, "--once") == 0
    assert cli.out.startswith("checkpoint 1 · batch 1 · full · ")
    assert cli("spark", "watch", growing.root, store, "--once") == 0
    assert cli.out == "checkpoint 1 · batch 1 · was there already\n"
    growing.run_batch()
    document = cli.document("spark", "watch", growing.root, store, "--once")
    assert (document["id"], document["batch"], document["full"]) == (2, 2, False)


@pytest.mark.parametrize("command", [("watch", "--once"), ("snapshot", "--keep", "2")])
def test_a_process_that_ends_at_once_does_not_read_what_is_stored(
    growing: GrowingDirectory,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    growing.put("state/0/0/1.delta", os.urandom(2 << 20))
    monkeypatch.setattr("seamark.native.daily_reads._moment", lambda _: (time.time() + 9e3) % 86400)
    read = CountedBytes(monkeypatch)
    name, *options = command
    for _ in range(3):
        assert cli("spark", name, growing.root, tmp_path / "store", *options) == 0
        growing.run_batch()
    assert read.since_last() == 0


def test_once_of_a_path_that_is_not_there_is_an_error_and_makes_no_store(
    tmp_path: Path, cli: Cli
) -> None:
    assert cli("spark", "watch", tmp_path / "nothing", tmp_path / "store", "--once") == 4
    assert "there is no directory" in cli.err
    assert not (tmp_path / "store").exists()


def test_the_examples_in_the_documentation_work(
    growing: GrowingDirectory, tmp_path: Path, cli: Cli
) -> None:
    page = (Path(__file__).parents[3] / "docs/native.md").read_text()
    examples = re.findall(r"^\$ seamark (spark watch .*)$", page, re.M)
    assert len(examples) == 2
    for example in examples:
        typed = example.replace("/data/counts", str(growing.root))
        words = shlex.split(typed.replace("/backup/counts", str(tmp_path / "store")))
        if "--once" in words:
            assert cli(*words) == 0
            assert cli.out == "checkpoint 1 · batch 1 · was there already\n"
            continue
        with watch(*words[2:]) as running:
            until(lambda: newest_batch(tmp_path / "store") == 1)
            assert running.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize("every", ["5", "0b", "0s", "b", "-3s", "ten"])
def test_how_often_must_be_a_time_or_a_number_of_batches(
    every: str, growing: GrowingDirectory, tmp_path: Path, cli: Cli
) -> None:
    assert cli("spark", "watch", growing.root, tmp_path / "store", f"--every={every}") == 2
    assert "give a time like 30s, or batches like 5b" in cli.err


def test_sigterm_ends_it_well_after_a_last_checkpoint(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with watch(growing.root, store, "--every", "1000b", "--json") as running:
        until(lambda: newest_batch(store) == 1)
        growing.run_batch()
        code, lines, err = running.end(signal.SIGTERM)
    assert (code, err) == (0, "")
    first, last = map(json.loads, lines)
    assert (first["batch"], first["full"]) == (1, True)
    assert (last["batch"], last["newest_batch"], last["lag_batches"], last["failures"]) == (
        2, 2, 0, 0,
    )  # fmt: skip
    assert batches_restored_from(store, tmp_path) == [1, 2]


def test_a_path_may_appear_later_and_ctrl_c_is_told_by_its_own_code(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with watch(tmp_path / "directory", store, "--every", "0.1s") as running:
        assert running.process.stderr is not None
        assert "waiting for it to appear" in running.process.stderr.readline()
        growing = GrowingDirectory(tmp_path / "directory").run_batches(1)
        until(lambda: newest_batch(store) == 0)
        growing.run_batch()
        until(lambda: newest_batch(store) == 1)
        code, lines, err = running.end(signal.SIGINT)
    assert (code, err) == (130, "Interrupted.\n")
    assert [line.split(" · ")[1] for line in lines] == ["batch 0", "batch 1"]


def test_killed_at_any_time_it_goes_on_where_the_store_is(tmp_path: Path) -> None:
    growing = GrowingDirectory(tmp_path / "directory").run_batches(1)
    store = tmp_path / "store"

    # on a machine that has no time for the watcher the batches wait for it
    def is_followed() -> bool:
        return growing.next_batch - newest_batch(store) < 50

    with growing.running(0.02, may_go_on=is_followed):
        for _ in range(3):
            before = newest_batch(store)
            with watch(growing.root, store, "--every", "0.01s", "--keep", "1000") as running:
                until(lambda before=before: newest_batch(store) > before + 3)  # type: ignore[misc]
                assert running.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with watch(growing.root, store) as running:
        growing.run_batch()  # one that only this watcher can store, so it has begun
        until(lambda: newest_batch(store) == growing.next_batch - 1)
        assert running.end(signal.SIGTERM)[0] == 0
    batches = batches_restored_from(store, tmp_path)
    assert batches == sorted(set(batches))
    assert batches[-1] == growing.next_batch - 1


def test_a_store_that_fails_is_told_and_tried_again(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    place = tmp_path / "disk"
    place.write_text("not mounted")
    with watch(growing.root, place / "store") as running:
        assert running.process.stderr is not None
        assert running.process.stderr.readline().startswith("warning: no checkpoint of ")
        place.unlink()
        until(lambda: newest_batch(place / "store") == 1)
        assert running.end(signal.SIGTERM)[0] == 0


def test_a_terminal_shows_how_far_it_is_behind(growing: GrowingDirectory, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "seamark", "spark", "watch"]
    process = subprocess.Popen(
        [*command, str(growing.root), str(tmp_path / "store")],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"},
    )
    os.close(theirs)
    shown = b""
    try:
        while b"nothing to do" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGTERM)
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # Linux says end of file on a terminal this way
                break
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "checkpoint 1 · batch 1 · full" in shown.decode()
    assert "batch 1 committed · nothing to do · checkpoint 1 holds batch 1" in shown.decode()
