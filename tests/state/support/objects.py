"""What an object store in memory holds."""

from __future__ import annotations

import obstore
from obstore.store import MemoryStore


def stored(store: MemoryStore) -> dict[str, bytes]:
    metas = [meta for page in obstore.list(store) for meta in page]
    return {
        meta["path"]: bytes(obstore.get(store, meta["path"]).bytes())
        for meta in sorted(metas, key=lambda meta: meta["path"])
    }
