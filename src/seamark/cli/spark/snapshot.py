"""``seamark spark snapshot`` and ``watch``: one checkpoint of a directory, or one after another."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from seamark._common.signals import first_signal
from seamark._common.text import seconds_text, size_text
from seamark.checkpoint_dir.places.directory import Directory
from seamark.cli.commands import PLACE, Command, duration, settings
from seamark.cli.output import (
    Document,
    print_hint,
    print_json,
    print_long,
    printable,
    progress_bar,
    stderr,
    stdout,
)
from seamark.cli.spark.arguments import opened_directory
from seamark.cli.store_argument import opened_store
from seamark.errors import CheckpointNotFoundError, SeamarkError
from seamark.native.snapshot import Snapshot, take_snapshot
from seamark.native.watch_status import WatchStatus
from seamark.native.watcher import KEEP, Watcher, WatchHooks, WatchPace

_LOOK: Final = 0.1
_BATCHES: Final = re.compile(r"([1-9]\d*)\s*b(?:atch(?:es)?)?")


@click.command("snapshot", cls=Command)
@click.argument("path", type=PLACE)
@click.argument("store", type=PLACE)
@click.option("--batch", type=click.IntRange(0), help="Save this batch instead of the newest one.")
@click.option("--full", is_flag=True, help="Save everything, even what the store already has.")
@click.option("--keep", type=click.IntRange(1), help="Afterwards, prune to this many checkpoints.")
def snapshot_command(
    path: str, store: str, batch: int | None, full: bool, keep: int | None
) -> None:
    """Save a checkpoint directory in a store.

    The newest committed batch of PATH becomes a checkpoint of STORE, with only the files that the
    store does not have yet. The query may be running. A batch that was planned but not finished is
    saved too, and is replayed first after a restore.
    """
    with opened_directory(path) as directory, opened_store(store, must_exist=False) as opened:
        with progress_bar("reading", None, of_bytes=True) as advance:
            taken = take_snapshot(
                directory,
                opened,
                batch=batch,
                full=full,
                keep=keep,
                read_daily=keep is not None,
                advance=advance,
            )
        _print(taken, None, stdout())
        if settings().as_json:
            return
        if batch is not None and taken.is_new:
            print_hint(f"It is the newest checkpoint now: 'latest' means batch {taken.batch}.")
        words = shlex.join([store, str(taken.checkpoint_id)])
        print_hint(f"Restore it with: seamark spark restore {words} NEW_PATH")


def snapshot_document(taken: Snapshot) -> Document:
    """What ``--json`` prints about a snapshot."""
    return {
        "id": taken.checkpoint_id,
        "batch": taken.batch,
        "epoch": taken.batch + 1,
        "new": taken.is_new,
        "full": taken.is_full,
        "files": taken.files,
        "bytes": taken.size,
        "in_flight": taken.batch + 1 if taken.in_flight else None,
        "seconds": round(taken.seconds, 6),
    }


def snapshot_line(document: Document) -> str:
    """The same in one line, for people."""
    head = f"checkpoint {document['id']} · batch {document['batch']}"
    if not document["new"]:
        return f"{head} · was there already"
    planned = "" if document["in_flight"] is None else f" · batch {document['in_flight']} in flight"
    return (
        f"{head} · {'full' if document['full'] else 'incremental'} · {document['files']} files, "
        f"{size_text(document['bytes'])}{planned} · {seconds_text(document['seconds'])}"
    )


def _every(_: click.Context, __: click.Parameter, text: str) -> float:
    """An int for batches, a float for seconds."""
    batches = _BATCHES.fullmatch(text.strip().lower())
    if batches is not None:
        return int(batches[1])
    try:
        seconds = duration(text)
    except click.BadParameter:
        seconds = 0.0
    if seconds <= 0:
        raise click.BadParameter("give a time like 30s, or batches like 5b")
    return seconds


@click.command("watch", cls=Command)
@click.argument("path", type=PLACE)
@click.argument("store", type=PLACE)
@click.option("--once", is_flag=True, help="Save one checkpoint and exit.")
@click.option(
    "--every",
    default="1b",
    show_default=True,
    metavar="30s|5b",
    callback=_every,
    help="How often: a duration or a number of batches.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=KEEP,
    show_default=True,
    help="Prune to this many checkpoints after each one.",
)
def watch_command(path: str, store: str, once: bool, every: float, keep: int) -> None:
    """Keep saving a checkpoint directory in a store.

    Does again and again what 'seamark spark snapshot' does once: the newest committed batch of PATH
    becomes a checkpoint of STORE. The query is not touched and need not be running; PATH need not
    exist yet. Failures are reported and tried again. Ctrl-C or SIGTERM ends it after a last
    checkpoint; a second one ends it at once.
    """
    with opened_directory(path) as directory:
        if once:
            with opened_store(store, must_exist=False) as opened:
                taken = take_snapshot(directory, opened, keep=keep, read_daily=True)
            _print(taken, None, stdout())
            return
        _watch(directory, store, every, keep)


def _watch(directory: Directory, store: str, every: float, keep: int) -> None:
    taken: SimpleQueue[Snapshot] = SimpleQueue()
    watcher = Watcher(
        directory,
        store,
        WatchPace(every=every, keep=keep),
        WatchHooks(on_taken=taken.put),
        storage_options=settings().storage_options,
    )
    _say_what_is_awaited(directory)
    with first_signal() as received, _screen(watcher) as show:
        watcher.start()
        try:
            while not watcher.join(_LOOK):
                show(taken)
                if received and not watcher.ending:
                    watcher.finish()
        finally:
            status = watcher.stop(last=False)
        show(taken)
    if status.failures_in_a_row and status.last_failure is not None:
        print_long(f"warning: the last try failed: {status.last_failure.what}", stderr())
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def _say_what_is_awaited(directory: Directory) -> None:
    try:
        awaited = directory.newest_commit() is None
        what = "its first committed batch"
    except CheckpointNotFoundError:
        awaited, what = True, "it to appear"
    except SeamarkError:
        return  # the watcher reports it and tries again
    if awaited and not settings().quiet:
        print_long(f"{directory.url}: waiting for {what}", stderr())


def _print(taken: Snapshot, status: WatchStatus | None, console: Console) -> None:
    document = snapshot_document(taken)
    if settings().as_json:
        if status is not None:
            document["newest_batch"] = status.newest_batch
            document["lag_batches"] = status.lag_batches
            document["failures"] = status.failures
        print_json(document)
        return
    print_long(snapshot_line(document), console)


@contextmanager
def _screen(watcher: Watcher) -> Iterator[Callable[[SimpleQueue[Snapshot]], None]]:
    """What prints the checkpoints that wait in a queue; on a terminal with a live line below."""
    console = stdout()
    asked = settings()
    is_live = console.is_terminal and not asked.quiet and not asked.as_json
    live = Live(console=console, auto_refresh=False, transient=True) if is_live else None

    def show(queue: SimpleQueue[Snapshot]) -> None:
        status = watcher.status()
        while True:
            try:
                _print(queue.get_nowait(), status, console)
            except Empty:
                break
        if live is not None:
            live.update(
                Text(printable(str(status)), "dim", no_wrap=True, overflow="ellipsis"), refresh=True
            )

    if live is None:
        yield show
        return
    with live:
        yield show
