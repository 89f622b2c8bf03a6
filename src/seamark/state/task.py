"""Writing the states of one task: the part of a checkpoint that one thread or process brings.

Small states are packed, large ones get an object of their own. A task ends in a receipt, a small
value that goes back to the writer of the manifest. Until that is written, nothing a task did
counts, and a task that dies leaves only objects that nobody refers to.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat
from typing import Final, Self

import msgspec
from msgspec import UNSET

from seamark._common.checks import U32_MAX, check_name, check_number
from seamark._common.json_documents import UNREADABLE
from seamark.blobs.conditional_writes import Taken, create_once
from seamark.blobs.contract import Blobs, Buffer, KeyExists
from seamark.blobs.streams import PIECE, Hashing, pieces_of, small_or_stream
from seamark.errors import DamageError, InvalidInputError, RefusedError
from seamark.state.layout import (
    CheckpointId,
    CheckpointPaths,
    PartitionSnapshotEntry,
    decode_ids,
    encode_ids,
    state_path,
)
from seamark.state.pack import PackBuilder

PACK_BELOW: Final = 1 << 20
"""States smaller than this are packed."""
PACK_BYTES: Final = 16 << 20
"""A pack is written when its blocks have reached this."""
_PACK_AT_ONCE: Final = 1 << 20
"""Small states are compressed and hashed when this much of them has come together."""


class TaskReceipt(msgspec.Struct, frozen=True):
    """What a task has written: enough to put it into a manifest. Travels as JSON."""

    checkpoint_id: CheckpointId
    task: str
    entries: list[tuple[str, PartitionSnapshotEntry]]

    def to_json(self) -> bytes:
        """The receipt as bytes, for a pipe, a queue or a file."""
        return msgspec.json.encode(self, enc_hook=encode_ids)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """A receipt that came as bytes."""
        try:
            return msgspec.json.decode(data, type=cls, dec_hook=decode_ids)
        except UNREADABLE as error:
            raise InvalidInputError(f"not a receipt: {error}") from None


class StateTask:
    """Takes states from any thread, uploads them side by side, and gives a receipt at the end."""

    def __init__(
        self,
        blobs: Blobs,
        paths: CheckpointPaths,
        checkpoint_id: CheckpointId,
        name: str,
        *,
        parallelism: int = 4,
        pack_below: int = PACK_BELOW,
        pack_bytes: int = PACK_BYTES,
    ) -> None:
        check_number("parallelism", parallelism, 1, 1024)
        self.checkpoint_id = checkpoint_id
        self.name = check_name(name, "task name")
        self._blobs = blobs
        self._folder = paths.checkpoint_dir(checkpoint_id)
        self._pack_below = pack_below
        self._pack_bytes = pack_bytes
        self._token = os.urandom(4).hex()
        self._packs = 0
        self._pack = PackBuilder()
        self._small: list[tuple[str, int, bool, bytes]] = []
        self._small_bytes = 0
        self._entries: list[tuple[str, PartitionSnapshotEntry]] = []
        self._taken: set[tuple[str, int]] = set()
        self._operators: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(parallelism, "seamark-state")
        self._free = threading.Semaphore(2 * parallelism)  # what waits in memory is bounded
        self._uploads: list[Future[None]] = []
        self._uploads_lock = threading.Lock()
        self._done = False
        self._failed: tuple[str, int] | None = None

    def put(
        self,
        operator: str,
        partition: int,
        state: Buffer | Iterable[Buffer],
        *,
        is_delta: bool = False,
    ) -> None:
        """Bring the state of one partition: all of it, or the changes since the parent.

        Bytes may be uploaded after this returns, so do not change them. An iterable is consumed
        here and never held as a whole.
        """
        if partition.__class__ is not int or not 0 <= partition <= U32_MAX:
            check_number("partition", partition, 0, U32_MAX)
        if state.__class__ is not bytes:
            state = self._taken_as(state)
        place = (operator, partition)
        with self._lock:
            if self._done:
                raise InvalidInputError(f"the task {self.name!r} is finished")
            if operator not in self._operators:
                self._operators.add(check_name(operator, "operator name"))
            if place in self._taken:
                raise InvalidInputError(
                    f"operator {operator!r} partition {partition} was put already"
                )
            self._taken.add(place)
            if isinstance(state, bytes) and (size := len(state)) < self._pack_below:
                self._small.append((operator, partition, is_delta, state))
                self._small_bytes = waiting = self._small_bytes + size
                # a block is never larger than its state, so no pack outgrows its size unseen
                if waiting >= _PACK_AT_ONCE or waiting + self._pack.size >= self._pack_bytes:
                    self._pack_small()
                return
        try:
            if isinstance(state, bytes | bytearray | memoryview):
                chunks = [state]
                self._submit(lambda: self._write_alone(operator, partition, chunks, is_delta))
            else:
                self._write_alone(operator, partition, state, is_delta)
        except BaseException:
            # without it the partition would silently keep its old state while the others are new
            self._failed = place
            raise

    def _taken_as(self, state: Buffer | Iterable[Buffer]) -> Buffer | Iterable[Buffer]:
        """The same state as it is handled here: small ones are packed, whatever they come in."""
        if isinstance(state, bytearray | memoryview):
            return bytes(state) if len(state) < self._pack_below else state
        if not isinstance(state, Iterable):
            raise InvalidInputError(f"a state must be bytes, not {type(state).__name__}")
        return state

    def _pack_small(self) -> None:
        """Move what has come together into the pack. Called with the lock held."""
        if not self._small:
            return
        operators, partitions, deltas, states = zip(*self._small, strict=True)
        self._small, self._small_bytes = [], 0
        placed = self._pack.add_all(
            [
                f"{operator}/{partition}/{'d' if is_delta else 's'}"
                for operator, partition, is_delta in zip(operators, partitions, deltas, strict=True)
            ],
            states,
        )
        entries = map(
            PartitionSnapshotEntry,
            partitions,
            deltas,
            repeat(self._pack_path()),
            map(len, states),
            map(bytes.hex, placed.digests),
            repeat(UNSET),
            placed.blocks,
        )
        self._entries += zip(operators, entries, strict=True)
        if self._pack.size >= self._pack_bytes:
            self._send_pack()

    def _pack_path(self) -> str:
        return f"packs/{self.name}-{self._token}-{self._packs + 1}.lcb"

    def _send_pack(self) -> None:
        """Upload the full pack and start a new one. Called with the lock held."""
        if not len(self._pack):
            return
        pack, path = self._pack, self._pack_path()
        self._pack = PackBuilder()
        self._packs += 1
        self._submit(lambda: self._write_pack(path, pack))

    def _write_pack(self, path: str, pack: PackBuilder) -> None:
        key, data = self._folder + path, b"".join(pack.finish())
        limit = self._blobs.max_put
        if limit is not None and len(data) <= limit:
            create_once(self._blobs, key, data, len(data))
        else:
            self._blobs.create_stream(key, [data])

    def _write_alone(
        self, operator: str, partition: int, state: Iterable[Buffer], is_delta: bool
    ) -> None:
        """Write an object of its own: under its plain name, or with a token when that is taken.

        It is when a task is tried again after a first try that died; what that left is not
        touched, it may still be on its way.
        """
        plain = state_path(operator, partition, is_delta=is_delta)
        own_path = state_path(operator, partition, is_delta=is_delta, token=self._token)
        hasher = hashlib.sha256()
        if self._blobs.max_put is None:
            path, size = self._write_file(plain, own_path, state, hasher)
        else:
            path, size = self._write_object(plain, own_path, pieces_of(state), hasher)
        entry = PartitionSnapshotEntry(partition, is_delta, path, size, hasher.hexdigest())
        # without the lock: who holds it may be waiting for this upload to make room
        self._entries.append((operator, entry))

    def _write_file(
        self, plain: str, own_path: str, state: Iterable[Buffer], hasher: hashlib._Hash
    ) -> tuple[str, int]:
        taken = self._blobs.stat(self._folder + plain) is not None
        path = own_path if taken else plain
        counted = Hashing(pieces_of(state), hasher)
        try:
            self._blobs.create_stream(self._folder + path, counted)
        except KeyExists:
            if path == own_path or not isinstance(state, list):
                raise RefusedError(
                    f"{path} was written by another try of this task at the same time",
                    where=self._blobs.url,
                    hint="Write it again.",
                ) from None
            self._blobs.create_stream(self._folder + own_path, pieces_of(state))
            path = own_path
        return path, counted.length

    def _write_object(
        self, plain: str, own_path: str, pieces: Iterator[Buffer], hasher: hashlib._Hash
    ) -> tuple[str, int]:
        data = small_or_stream(pieces, self._blobs.max_put or 0)
        if not isinstance(data, bytes):
            # parts cannot be create-only, so they get a name that nobody else can have
            counted = Hashing(data, hasher)
            self._blobs.create_stream(self._folder + own_path, counted)
            return own_path, counted.length
        hasher.update(data)
        # what another try has left is not relied on, even with the same bytes: it may be cleaned up
        taken = self._blobs.stat(self._folder + plain) is not None
        for path in (own_path,) if taken else (plain, own_path):
            try:
                create_once(self._blobs, self._folder + path, data, max(len(data), 1) + PIECE)
                return path, len(data)
            except (Taken, DamageError):
                continue  # another try's object is there, with other bytes or more of them
        raise RefusedError(f"{plain} and {own_path} are both taken", where=self._blobs.url)

    def _submit(self, upload: Callable[[], None]) -> None:
        """Hand an upload to the pool; waits while too many are on their way."""
        self._raise_failure()
        self._free.acquire()

        def run() -> None:
            try:
                upload()
            finally:
                self._free.release()

        with self._uploads_lock:
            try:
                self._uploads.append(self._pool.submit(run))
            except RuntimeError:
                self._free.release()
                raise InvalidInputError(f"the task {self.name!r} is finished") from None

    def _raise_failure(self) -> None:
        with self._uploads_lock:
            done = [upload for upload in self._uploads if upload.done()]
            for upload in done:
                upload.result()
            self._uploads = [upload for upload in self._uploads if upload not in done]

    def finish(self) -> TaskReceipt:
        """Wait until everything is durable; the receipt for the manifest."""
        with self._lock:
            if self._done:
                raise InvalidInputError(f"the task {self.name!r} is finished or abandoned")
            self._done = True
            if self._failed is not None:
                self._pool.shutdown(cancel_futures=True)
                raise InvalidInputError(
                    f"operator {self._failed[0]!r} partition {self._failed[1]} could not be put",
                    hint="Begin the checkpoint again.",
                )
            self._pack_small()
            self._send_pack()
        try:
            for upload in self._uploads:
                upload.result()
        finally:
            self._pool.shutdown(cancel_futures=True)
        return TaskReceipt(self.checkpoint_id, self.name, self._entries)

    def abandon(self) -> None:
        """Stop without a receipt. What was uploaded is nobody's, and is cleaned up in time."""
        self._done = True
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._done:
            self.abandon()
