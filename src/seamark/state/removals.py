"""Removing state checkpoints while other processes publish new ones.

One that is published meanwhile may need what goes. So whoever publishes says first what the new one
needs, and then sees that it is there (:meth:`Catalog.keeping`). A removal takes manifests first.
Then it looks for what is needed by now, puts that back, and removes objects last. So of the two at
least one sees the other. A removal that fails before it has seen what is needed puts all back.
Only one removal runs at a time (:mod:`seamark.state.removal_mark`): what another has removed since
is not put back, because its objects go.

Tests: ``tests/state/test_removals_beside_writers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from seamark._common.logs import logger_named
from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, SeamarkError
from seamark.state.catalog import Catalog
from seamark.state.chains import links_of
from seamark.state.layout import CheckpointId, CheckpointManifestV2, CheckpointPaths
from seamark.state.reader import key_of
from seamark.state.removal_mark import RemovalMark

log = logger_named(__name__)

Loaded = Mapping[CheckpointId, CheckpointManifestV2 | DamageError]


class StatePlace(NamedTuple):
    """One state store's backend, names and manifests."""

    blobs: Blobs
    paths: CheckpointPaths
    catalog: Catalog


def readable(loaded: Loaded) -> dict[CheckpointId, CheckpointManifestV2]:
    """Those whose manifests are not damaged."""
    return {i: m for i, m in loaded.items() if isinstance(m, CheckpointManifestV2)}


def objects_of(manifest: CheckpointManifestV2, paths: CheckpointPaths) -> set[str]:
    """The keys of all objects that a manifest names, wherever they were written."""
    return {key_of(link, paths) for _, link in links_of(manifest)}


def remove(
    place: StatePlace,
    doomed: Sequence[CheckpointId],
    loaded: Loaded,
    is_needed: Callable[[str], bool],
) -> set[CheckpointId]:
    """Remove checkpoints in this order, children before parents; those that are gone now.

    ``loaded`` is what there was when they were chosen. Then all objects of theirs go that are not
    needed, neither by those that stay nor by one that was published since.
    :class:`RefusedError` when another removal runs.
    """
    if not doomed:
        return set()
    with RemovalMark(place.blobs, place.paths).held() as renew:
        return _remove_alone(place, doomed, loaded, is_needed, renew)


def _remove_alone(
    place: StatePlace,
    doomed: Sequence[CheckpointId],
    loaded: Loaded,
    is_needed: Callable[[str], bool],
    renew: Callable[[], None],
) -> set[CheckpointId]:
    blobs, paths, catalog = place
    wanted, came, listed = news(catalog, loaded)
    there = [checkpoint_id for checkpoint_id in doomed if checkpoint_id in listed]
    going = _unless_needed(there, loaded, wanted, came)
    try:
        for checkpoint_id in going:
            renew()
            blobs.delete_durably([paths.manifest(checkpoint_id)])
        wanted, came, _ = news(catalog, loaded)
        gone = _unless_needed(going, loaded, wanted, came)
        left = readable({i: loaded[i] for i in set(there).difference(gone) if i in loaded})
        for checkpoint_id in sorted(left.keys() & set(going)):  # parents before children
            catalog.put_back(left[checkpoint_id])
    except BaseException:
        # nobody has seen what is needed by now
        _put_all_back(catalog, readable({i: loaded[i] for i in going if i in loaded}))
        raise
    new = readable(came)
    no_longer = {*gone, *doomed}.difference(left)
    if len(new) < len(came):
        return no_longer  # nobody knows which objects a damaged one needs
    staying = (*new.values(), *left.values())
    named = set[str]().union(*(objects_of(manifest, paths) for manifest in staying))
    for checkpoint_id in gone:
        renew()
        entries = blobs.entries(paths.checkpoint_dir(checkpoint_id))
        keys = [entry.key for entry in entries]
        blobs.delete([key for key in keys if key not in named and not is_needed(key)])
    return no_longer


def _put_all_back(catalog: Catalog, taken: Mapping[CheckpointId, CheckpointManifestV2]) -> None:
    for checkpoint_id in sorted(taken):
        try:
            catalog.put_back(taken[checkpoint_id])
        except SeamarkError as error:
            log.warning(
                "state checkpoint %s was being removed and could not be put back; one that was "
                "published meanwhile may need it: %s",
                checkpoint_id,
                error,
            )


class News(NamedTuple):
    """What there is in a store since some of it was loaded."""

    wanted: set[CheckpointId]
    """What others are about to need."""
    came: Loaded
    """What was published."""
    listed: set[CheckpointId]
    """All that there is."""


def news(catalog: Catalog, loaded: Loaded) -> News:
    """What others are about to need, and what was published since those were loaded."""
    wanted = catalog.wanted()  # first: what is not wanted any more is published by then
    listed = catalog.ids()
    return News(wanted, catalog.load_all(i for i in listed if i not in loaded), {*listed})


def _unless_needed(
    doomed: Sequence[CheckpointId], loaded: Loaded, wanted: set[CheckpointId], came: Loaded
) -> list[CheckpointId]:
    """Those that neither new nor wanted ones build on."""
    line = {i: m.parent_id for i, m in readable(loaded).items()}
    needed: set[CheckpointId] = set()
    for first in (*wanted, *(new.parent_id for new in readable(came).values())):
        at = first
        while at is not None and at in line and at not in needed:
            needed.add(at)
            at = line[at]
    return [i for i in doomed if i not in needed]
