"""Where the bytes of a store are: objects that are missing, that nobody names, in packs that are
mostly dead, and in uploads that were never finished.

Tests: ``tests/cli/test_doctor_space.py``.
"""

from __future__ import annotations

import time
from shlex import quote
from typing import Final

from seamark._common.text import age_text, plural, size_text
from seamark.blobs.contract import Blobs
from seamark.capture.checkpoint_contents import Chain
from seamark.capture.file_index import PackUse, packs_in
from seamark.capture.pack_rewrites import is_mostly_dead
from seamark.errors import CheckpointNotFoundError, DamageError, StoreUnavailableError
from seamark.reports.checkpoint_summary import USABLE, CheckpointSummary, summarize_checkpoints
from seamark.store import CheckpointStore
from seamark.store.health import HealthCheck, failed, ok, tried, warning

HOUR: Final = 3600.0

_RULE: Final = (
    "They cost as much as stored bytes. Give the bucket a lifecycle rule with "
    "AbortIncompleteMultipartUpload (DaysAfterInitiation: 1); it removes them by itself."
)


def check_space(store: CheckpointStore) -> list[HealthCheck]:
    """What there is about shared objects and uploads. Writes nothing."""
    summaries: dict[int, CheckpointSummary] = {}

    def look() -> HealthCheck:
        summaries.update(summarize_checkpoints(store))
        return _all_checkpoints(store, summaries)

    checks = [tried("all checkpoints", look)]
    checks.append(tried("shared objects", lambda: _unnamed(store)))
    checks.append(tried("packs", lambda: _packs(store, summaries)))
    uploads = tried("unfinished uploads", lambda: _uploads(store.backend))
    return [*checks, uploads]


def _all_checkpoints(
    store: CheckpointStore, summaries: dict[int, CheckpointSummary]
) -> HealthCheck:
    """Whether all that any checkpoint names is there."""
    name = "all checkpoints"
    broken = {i: one.damage for i, one in summaries.items() if one.damage is not None}
    if broken:
        first = max(broken)
        more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
        hint = "'seamark verify STORE' names all. A copy may still have what is missing."
        return failed(name, DamageError(f"{first}: {broken[first]}{more}", hint=hint))
    unread = sum(one.error is not None for one in summaries.values())
    if unread:
        return warning(name, f"{unread} of {len(summaries)} could not be read", "Try again.")
    objects = store.shared_objects.entries()
    if not objects:
        return ok(name, f"{plural(len(summaries), 'checkpoint')}, and all that they name is there")
    size = size_text(sum(entry.size for entry in objects.values()))
    return ok(
        name,
        f"{plural(len(summaries), 'checkpoint')}, and all that they name is there; "
        f"{plural(len(objects), 'shared object')}, {size}",
    )


def _unnamed(store: CheckpointStore) -> HealthCheck:
    name = "shared objects"
    now = time.time()
    try:
        unnamed = store.shared_objects.orphans(0.0, now)
    except DamageError as error:
        why = f"nobody knows which of them are needed: {error.what}"
        return warning(name, why, "None is removed until that is put right.")
    old = [entry for entry in unnamed if entry.modified <= now - HOUR]
    if old:
        oldest = age_text(int(min(entry.modified for entry in old) * 1000), now)
        return warning(
            name,
            f"{len(old)} that no checkpoint names, {size_text(sum(e.size for e in old))}, "
            f"the oldest {oldest}",
            "A writer that died has left them. 'seamark gc STORE' shows and removes them.",
        )
    if unnamed:
        size = size_text(sum(entry.size for entry in unnamed))
        return ok(name, f"{len(unnamed)}, {size}, are so new that a writer may be about to name "
                  "them")  # fmt: skip
    return ok(name, "every one is named by a checkpoint")


_REWRITTEN: Final = "A running pipeline moves what is alive into a new pack when it is worth it."
_NOT_REWRITTEN: Final = (
    "Nobody rewrites the packs of a query that is watched or protected. 'seamark spark snapshot "
    "PATH STORE --full' stores anew what is alive."
)


def _packs(store: CheckpointStore, summaries: dict[int, CheckpointSummary]) -> HealthCheck:
    """Whether the newest checkpoint keeps packs of which it needs little."""
    name = "packs"
    newest = max((i for i, one in summaries.items() if one.status in USABLE), default=None)
    manifest = store.load_by_id(newest) if newest is not None else None
    if manifest is None or not store.shared_objects.entries():
        return ok(name, "none")
    try:
        index = Chain.load(store, manifest, with_contents=False).index
    except CheckpointNotFoundError:
        return ok(name, f"checkpoint {newest} was pruned while it was looked at")
    packs = packs_in(index) if index is not None else []
    if not packs:
        return ok(name, "none")
    dead = [pack for pack in packs if is_mostly_dead(pack.living, pack.size)]
    found = f"{plural(len(packs), 'pack')} of checkpoint {newest}, {_dead_text(packs)}"
    if not dead:
        return ok(name, f"{found}; none is mostly dead")
    return warning(
        name,
        f"{found}; {len(dead)} mostly dead, {_dead_text(dead)}",
        (_REWRITTEN if manifest.native is None else _NOT_REWRITTEN)
        + " What older checkpoints need stays until they are pruned.",
    )


def _dead_text(packs: list[PackUse]) -> str:
    dead = sum(max(0, pack.size - pack.living) for pack in packs)
    return f"{size_text(dead)} of {size_text(sum(pack.size for pack in packs))} dead"


def _uploads(blobs: Blobs) -> HealthCheck:
    name = "unfinished uploads"
    from seamark.blobs.object_store import ObjectBlobs
    from seamark.blobs.unfinished_uploads import Bucket

    if not isinstance(blobs, ObjectBlobs):
        return ok(name, "none: files are written beside their place and moved there when whole")
    bucket = Bucket.of(blobs)
    if bucket is None:
        return _other_service(name, type(blobs.client).__name__)
    try:
        uploads = bucket.unfinished_uploads()
    except StoreUnavailableError as error:
        if bucket.removes_unfinished():
            return ok(name, "a lifecycle rule of the bucket removes them")
        return warning(
            name,
            f"not known: {error.what}",
            f"It takes s3:ListBucketMultipartUploads. If there are any: {_RULE}",
        )
    now = time.time()
    old = [upload for upload in uploads if upload.started <= now - HOUR]
    if not old:
        young = f"; {len(uploads)} in progress" if uploads else ""
        return ok(name, f"none is older than an hour{young}")
    oldest = min(old, key=lambda upload: upload.started)
    found = f"{len(old)}, the oldest {age_text(int(oldest.started * 1000), now)} ({oldest.key})"
    if bucket.removes_unfinished():
        return ok(name, f"{found}; a lifecycle rule of the bucket removes them")
    return warning(
        name,
        found,
        f"{_RULE} By hand: aws s3api abort-multipart-upload --bucket {quote(bucket.name)} "
        f"--key {quote(oldest.key)} --upload-id {quote(oldest.upload_id)}",
    )


def _other_service(name: str, service: str) -> HealthCheck:
    if service == "AzureStore":
        return ok(name, "Azure removes blocks that were never committed after a week")
    return ok(
        name,
        "not looked at on this service; a lifecycle rule with AbortIncompleteMultipartUpload "
        "removes them",
    )
