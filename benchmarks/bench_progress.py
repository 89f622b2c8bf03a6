"""What a session of a progress store costs: on RocksDB, on Redis, and in a pipeline's epochs."""

from __future__ import annotations

import itertools
import statistics
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness import Row, in_milliseconds, interleaved, options, ratio, scratch, seconds, show
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from seamark.progress import SourceCheckpointStore, open_progress
from tests.support.databases import redis_server

KEYS: Final = [b"key-%08d" % number for number in range(1000)]
VALUE: Final = b"v" * 100
POSITION: Final = b'{"trades":{"0":1234567,"1":1234567,"2":1234567,"3":1234567}}'


def session_of(store: SourceCheckpointStore) -> Callable[[], None]:
    """One checkpoint and a thousand keys, committed together."""
    numbers = itertools.count(1)

    def run() -> None:
        with store.session() as session:
            for key in KEYS:
                session.put("totals", key, VALUE)
            session.stage_checkpoint("trades", next(numbers), POSITION)

    return run


def bare_batch(folder: Path) -> Callable[[], None]:
    """The same keys and values in one synced write batch."""
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    database: Any = Rdict(str(folder), Options(raw_mode=True))
    synced = WriteOptions()
    synced.sync = True

    def run() -> None:
        batch = WriteBatch(raw_mode=True)
        for key in KEYS:
            batch.put(b"data:totals\x00" + key, VALUE)
        batch.put(b"source_sequence:trades", b"12345678")
        batch.put(b"source_position:trades", POSITION)
        database.write(batch, synced)

    return run


def on_rocksdb(folder: Path, rounds: int) -> list[Row]:
    """Sessions against bare batches, in turns."""
    with open_progress(f"rocksdb://{folder}/ours") as store:
        cases = {"bare": bare_batch(folder / "bare"), "ours": session_of(store)}
        times = interleaved(cases, rounds)
    label = f"bare synced write batch ({in_milliseconds(times['bare'])})"
    what = "RocksDB: a session with one checkpoint and 1000 keys"
    return [Row(what, label, ratio(times["ours"], times["bare"]), 1.2)]


def beside_a_writer(folder: Path, rounds: int) -> list[Row]:
    """What a reader's look costs: after a write, and after RocksDB has made a new file."""
    from rocksdict import AccessType, Options, Rdict

    path = f"{folder}/read"
    with open_progress(f"rocksdb://{path}") as writer:
        write = session_of(writer)
        for _ in range(200):
            write()
        made: Any = writer
        rocksdb = made._ledger._database._rdict
        access = AccessType.secondary(f"{folder}/bare-reader")
        bare: Any = Rdict(path, Options(raw_mode=True), access_type=access)
        with open_progress(f"rocksdb://{path}", read_only=True) as reader:

            def bare_look() -> None:
                bare.try_catch_up_with_primary()
                bare.get(b"data:totals\x00" + KEYS[0])

            def look() -> None:
                reader.get("totals", KEYS[0])

            times: dict[str, list[float]] = {"bare": [], "log": [], "files": []}
            for _ in range(rounds // 4):
                write()
                times["bare"].append(seconds(bare_look))
                times["log"].append(seconds(look))
                rocksdb.flush()
                times["files"].append(seconds(look))
    label = f"bare reader that catches up ({in_milliseconds(times['bare'])})"
    what = "RocksDB: a look at one key, after"
    return [
        Row(f"{what} a session", label, ratio(times["log"], times["bare"]), 1.5),
        Row(f"{what} a new file", "-", statistics.median(times["files"]) * 1000, 50, " ms"),
    ]


def on_redis() -> list[Row]:
    """Round trips: how often the client sends before it has to wait."""
    from redis.connection import AbstractConnection

    sent = 0
    send: Any = AbstractConnection.send_packed_command

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        sent += 1
        return send(self, *args, **kwargs)

    with redis_server() as server:
        url = f"{server.url}?namespace={uuid.uuid4().hex}"
        with open_progress(url) as store:
            run = session_of(store)
            run()
            AbstractConnection.send_packed_command = counted  # type: ignore[method-assign]
            try:
                run()
            finally:
                AbstractConnection.send_packed_command = send  # type: ignore[method-assign]
    return [Row("Redis: round trips of a session", "-", sent, 3, "")]


def in_an_epoch(folder: Path, rounds: int) -> list[Row]:
    """What a pipeline's own record adds to each of its epochs."""
    record = ProgressRecord(f"rocksdb://{folder}/record", "bench")
    record.bring_to(None)
    numbers = itertools.count(1)
    sources = {f"source-{number}": POSITION for number in range(3)}
    times = interleaved({"note": lambda: record.note(next(numbers), sources, 7)}, rounds)
    record.close()
    took = statistics.median(times["note"]) * 1000
    return [Row("a pipeline's record of three sources, in an epoch", "-", took, 3, " ms")]


def main() -> None:
    """Measure all four."""
    given = options(__doc__)
    rounds = 50 if given.quick else 400
    with scratch(given.directory) as folder:
        rows = on_rocksdb(folder, rounds) + beside_a_writer(folder, rounds)
        show("Progress", rows + on_redis() + in_an_epoch(folder, rounds))


if __name__ == "__main__":
    main()
