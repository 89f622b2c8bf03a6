"""How many requests an object store gets, counted at the client, against a real S3 server.

Every call that Seamark makes here is one request: values go by single PUTs, and a GET brings a
whole object; only a listing has one per thousand names, and is counted once. The probe of
conditional writes, once per handle that writes, is left out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import obstore

from harness import Row, options, show
from seamark import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus, open_store
from seamark.blobs import object_store
from seamark.blobs.contract import PROBE_PREFIX
from seamark.store.checkpoint_store import CheckpointStore
from tests.support.recording import Recording
from tests.support.servers import s3_server

REQUESTS: Final = frozenset({"put", "get", "head", "delete", "copy", "rename", "list"})
CHAIN: Final = 4
SIDECAR: Final = b"sidecar" * 1000

OpenStore = Callable[[str], CheckpointStore]


class Requests(Counter[str]):
    """What was asked for, by verb."""

    @property
    def reads(self) -> int:
        """GETs and HEADs: everything beside the listing, when nothing is written."""
        return self["get"] + self["head"]

    def __str__(self) -> str:
        return " + ".join(f"{count} {verb}" for verb, count in sorted(self.items()))


@contextmanager
def counting() -> Iterator[Recording]:
    """Every call of the client that is made inside, as it is made."""
    recording = Recording()
    stand_in: Any = recording.wrap(obstore, "obstore")
    setattr(object_store, "obstore", stand_in)  # noqa: B010 - mypy minds the plain form
    try:
        yield recording
    finally:
        setattr(object_store, "obstore", obstore)  # noqa: B010


@contextmanager
def counted() -> Iterator[Requests]:
    """The requests that are made inside."""
    requests = Requests()
    with counting() as recording:
        yield requests
    calls = (call for call in recording.calls if PROBE_PREFIX not in call.summary)
    requests.update(call.name for call in calls if call.name in REQUESTS)


def inline(checkpoint_id: int) -> CheckpointManifest:
    """A full checkpoint that is one object."""
    state = {"join": OperatorCheckpoint.inline(b"state" * 100)}
    return CheckpointManifest.new(
        checkpoint_id,
        epoch=checkpoint_id,
        operator_states=state,
        sink_names=["lake"],
        sink_epochs={"lake": checkpoint_id},
        sink_commit_statuses={"lake": SinkCommitStatus.pending()},
    )


def external(checkpoint_id: int) -> CheckpointManifest:
    """A full checkpoint whose state is an object of its own."""
    state = {"join": OperatorCheckpoint.in_sidecar(0, len(SIDECAR))}
    return inline(checkpoint_id).replace(operator_states=state)


def save(store: CheckpointStore, checkpoint_id: int, *, sidecar: bool) -> CheckpointManifest:
    """Save one checkpoint of either kind."""
    if sidecar:
        return store.save_with_state(external(checkpoint_id), [SIDECAR])
    return store.save(inline(checkpoint_id))


def saving(new_store: Callable[[], CheckpointStore]) -> list[Row]:
    """The first and the following saves of a handle, and an update."""
    rows: list[Row] = []
    for claimed, sidecar in itertools.product((True, False), repeat=2):
        kind = f"{'sidecar' if sidecar else 'inline'}, {'claimed' if claimed else 'unclaimed'}"
        with new_store() as store:
            first = store.claim().tombstone_id if claimed else 1
            for at, when in enumerate(("first", "next")):
                with counted() as requests:
                    saved = save(store, first + at, sidecar=sidecar)
                limit = 4 if sidecar else 3
                rows.append(_row(f"{when} save, {kind}", requests, requests.total(), limit))
            committed = {"lake": SinkCommitStatus.committed()}
            with counted() as requests:
                store.update_manifest(saved.replace(sink_commit_statuses=committed))
            rows.append(_row(f"update, {kind}", requests, requests.total(), 2))
    return rows


def after_restart(open_again: OpenStore, url: str) -> list[Row]:
    """The same by handles that find checkpoints of others, with and without recovering first."""
    rows: list[Row] = []
    with open_again(url) as store:
        save(store, 1, sidecar=False)
    for recover in (True, False):
        when = "after a restart" if recover else "without having recovered"
        with open_again(url) as store:
            newest = store.list_ids()[-1]
            if recover:
                store.recover_latest_validated()
            stored = inline(newest).replace(timestamp_ms=_timestamp(open_again, url, newest))
            committed = {"lake": SinkCommitStatus.committed()}
            with counted() as requests:
                store.update_manifest(stored.replace(sink_commit_statuses=committed))
            rows.append(_row(f"first update, {when}", requests, requests.total(), 2))
            with counted() as requests:
                save(store, newest + 1, sidecar=False)
            rows.append(_row(f"first save, inline, {when}", requests, requests.total(), 3))
    return rows


def _timestamp(open_again: OpenStore, url: str, checkpoint_id: int) -> int:
    with open_again(url) as store:
        found = store.load_by_id(checkpoint_id)
        assert found is not None
        return found.timestamp_ms


def recovering(open_again: OpenStore, url: str, number: int) -> list[Row]:
    """What a handle that knows nothing needs to find the newest checkpoint."""
    rows = []
    with open_again(url) as store:
        for i in range(1, number):
            save(store, i, sidecar=False)
    # each adds a newest one to what the steps before have left
    steps: list[tuple[str, Callable[[CheckpointStore, int], object], int]] = [
        ("inline", lambda store, i: save(store, i, sidecar=False), 3),
        ("with a sidecar", lambda store, i: save(store, i, sidecar=True), 3),
        (f"{CHAIN} links, inline", lambda store, i: _chain(store, i, sidecar=False), 3 + 2 * CHAIN),
        (
            f"{CHAIN} links, sidecars",
            lambda store, i: _chain(store, i, sidecar=True),
            3 + 2 * CHAIN,
        ),
    ]
    for what, add, limit in steps:
        with open_again(url) as store:
            add(store, store.next_id())
        with open_again(url) as fresh:
            with counted() as requests:
                report = fresh.recover_latest_validated()
            assert report.chosen_id == fresh.list_ids()[-1]
        rows.append(
            _row(f"recovery among {number}, newest {what}", requests, requests.reads, limit)
        )
    return rows


def _chain(store: CheckpointStore, first: int, *, sidecar: bool) -> None:
    save(store, first, sidecar=sidecar)
    for i in range(first + 1, first + 1 + CHAIN):
        manifest = (external if sidecar else inline)(i)
        child = manifest.replace(is_incremental=True, parent_id=i - 1)
        store.save_with_state(child, [SIDECAR] if sidecar else None)


def _row(what: str, requests: Requests, measured: int, limit: int) -> Row:
    return Row(what, str(requests), measured, limit, "")


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    number = 100 if given.quick else 1000
    with s3_server() as server:

        def open_again(url: str) -> CheckpointStore:
            return open_store(url, storage_options=server.storage_options)

        rows = saving(lambda: open_again(server.new_url("pipeline")))
        rows += after_restart(open_again, server.new_url("pipeline"))
        rows += recovering(open_again, server.new_url("pipeline"), number)
    title = "requests to an object store; of a recovery, the reads beside its listing"
    show(title, rows, against="requests")


if __name__ == "__main__":
    main()
