"""The first checkpoint of a pipeline that has changed: the state of before, rearranged.

A state file is known by its path, and a path begins with the number of an operator. So the new
checkpoint names the objects that are stored already under other paths, and only what is new is
stored: the empty state of new operators, and Spark's logs with one line for each leaf of now. It
is an ordinary full checkpoint of the same epoch, the first of a new timeline. Until it is saved
nothing has changed; from then on every start goes on from it, and a rollback leads back.

Tests: ``tests/pipeline/test_upgrades.py``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from seamark.capture.checkpoint_contents import Chain, PlacedState, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex
from seamark.capture.movers import Contents
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.operators import StatefulOperator, parse_description
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, OutcomeUnknownError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import DeclaredPipeline, PipelineIdentity
from seamark.pipeline.declaration.upgrade_plan import UpgradePlan
from seamark.pipeline.epoch.output_digests import carried_digests
from seamark.pipeline.epoch.save_with_retry import save_with_retry
from seamark.pipeline.recovery.empty_state import EmptyState, empty_state
from seamark.pipeline.recovery.rollback import abandoned_timelines, shown_timeline
from seamark.pipeline.recovery.working_dirs import reordered
from seamark.progress.configuration import canonical_json
from seamark.spark.batch_log import (
    OffsetLogEntry,
    commit_text,
    parse_commit,
    parse_offsets,
)
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG

_STATE: Final = re.compile(r"state/([0-9]+)/(.+)")
_SOURCE: Final = re.compile(r"sources/([0-9]+)/(.+)")
_LOG_ENTRY: Final = re.compile(r"(offsets|commits)/([0-9]+)")
_KINDS: Final[Mapping[str, str]] = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "aggregation",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "symmetricHashJoin": "stream-stream join",
    "globalLimit": "limit",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState",
    "transformWithStateInPySparkExec": "transformWithState",
}
"""What Spark calls its operators where it describes them."""


class Upgrade:
    """Carries an upgrade out: from one checkpoint to the first one of the changed pipeline."""

    def __init__(
        self, store: CheckpointStore, chosen: CheckpointManifest, plan: UpgradePlan
    ) -> None:
        self._store = store
        self._chosen = chosen
        self._plan = plan
        chain = Chain.load(store, chosen)
        if chain.index is None:
            raise RefusedError(
                f"checkpoint {chosen.checkpoint_id} was made by an earlier Seamark",
                where=store.url,
                hint="Run one epoch of the unchanged pipeline first: its checkpoint can be "
                "rearranged.",
            )
        self._index = chain.index
        self._small = chain.small
        self._offsets = _entry(chain.small, chosen.batch)
        self._commit = parse_commit(chain.small.get(f"commits/{chosen.batch}", b"").decode())

    def refuse_if_begun(self, ahead: Mapping[str, int]) -> None:
        """:class:`RefusedError` when the next epoch has begun in the pipeline as it was.

        ``ahead`` are sinks that show later epochs, and up to which.
        """
        epoch = self._chosen.epoch
        begun = self._store.plans.epochs_after(self._chosen.timeline or "", epoch)
        if ahead or begun:
            shown = (f"{sink} shows epoch {number}" for sink, number in ahead.items())
            raise RefusedError(
                f"epoch {epoch + 1} was begun, and sinks may show it",
                where="; ".join(shown) or self._store.url,
                hint="Start once with the pipeline as it was, then change it.",
            )

    def empty_state(self, declared: DeclaredPipeline, place: WorkingCopy) -> EmptyState:
        """Empty state of every operator, of the kind that the checkpoint has. Made by Spark."""
        pinned = {str(name): str(value) for name, value in self._offsets.conf.items()}
        _, ids = self._commit
        return empty_state(declared, place, pinned=pinned, format_2=ids is not None)

    def save(self, declared: DeclaredPipeline, empty: EmptyState) -> CheckpointManifest:
        """Save the new checkpoint in a new timeline; that is the decision."""
        identity, settings = declared.identity, declared.settings
        self._require_numbers(identity, empty)
        uploads = Uploads(self._store.shared_objects)
        captured, index = self._rearranged(identity, empty)
        index.check()  # what no start could read must not be decided
        try:
            placed = place(captured, settings.sizes, uploads, index)
            self._store.begin_timeline()
            manifest = self._manifest(identity, placed, captured.versions)
            return save_with_retry(self._store, manifest, placed.chunks, settings.store_timeout)
        except OutcomeUnknownError:
            raise
        except Exception:
            uploads.discard()
            raise

    def _require_numbers(self, identity: PipelineIdentity, empty: EmptyState) -> None:
        """Refuse unless the numbers in both plans are those that the structures tell."""
        before = dict(self._operators_before())
        declared = (self._chosen.structure or {}).get("operators", [])
        _require_kinds(declared, before, f"checkpoint {self._chosen.checkpoint_id}")
        after = {number: found.operator.name for number, found in empty.operators.items()}
        _require_kinds(identity.structure["operators"], after, "Spark's plan")

    def _operators_before(self) -> Iterator[tuple[int, str]]:
        for label in self._index.operators:
            number, _, name = label.partition("-")
            yield int(number), name

    # files

    def _rearranged(
        self, identity: PipelineIdentity, empty: EmptyState
    ) -> tuple[Captured, FileIndex]:
        """What the new checkpoint holds itself, and the index of what is stored already."""
        targets = self._targets(identity)
        shared = {
            path: file
            for old, file in self._index.files.items()
            if file.shared is not None
            for path in targets(old)
        }
        small: Contents = {}
        for old, data in self._small.items():
            for path in targets(old):
                small[path] = _renumbered(path, old, data)
        version = self._chosen.epoch
        ids = self._ids(empty)
        for batch in (self._chosen.batch, self._chosen.batch - 1):
            small |= self._log_entries(batch, identity.leaves, ids)
        for number in self._plan.empty:
            small |= empty.files_at(number, version)
        operators = self._operators(empty)
        labels = {operator.number: operator.label for operator in operators}
        files: dict[str, Contents] = {label: {} for label in labels.values()}
        for path, data in small.items():
            match = _STATE.fullmatch(path)
            is_state = match is not None and "/_" not in path
            label = labels[int(match[1])] if match is not None and is_state else LOG
            files.setdefault(label, {})[path] = data
        most = max((operator.partitions for operator in operators), default=0)
        captured = Captured(files=files, is_full=True, versions=[version] * most)
        return captured, FileIndex(shared, sorted(labels.values()))

    def _targets(self, identity: PipelineIdentity) -> Any:
        """From the path of a file in the checkpoint to its paths now; none when it is dropped."""
        places: dict[int, list[int]] = {}
        for new, old in self._plan.origins.items():
            places.setdefault(old, []).append(new)
        had = list(dict.fromkeys(self._chosen.leaves or []))
        has = list(dict.fromkeys(identity.leaves))
        folders = {had.index(name): number for number, name in enumerate(has) if name in had}

        def targets(path: str) -> list[str]:
            if match := _STATE.fullmatch(path):
                return [f"state/{number}/{match[2]}" for number in places.get(int(match[1]), [])]
            if match := _SOURCE.fullmatch(path):
                if int(match[1]) >= len(had):
                    raise RefusedError(
                        "a pipeline that joins a source with itself cannot be rearranged",
                        hint="Undo the change, or give the changed pipeline a store of its own.",
                    )
                new = folders.get(int(match[1]))
                return [] if new is None else [f"sources/{new}/{match[2]}"]
            return [] if _LOG_ENTRY.fullmatch(path) else [path]

        return targets

    def _operators(self, empty: EmptyState) -> list[StatefulOperator]:
        """What each operator of now is, by Spark's own description of it."""
        operators = []
        for number, found in sorted(empty.operators.items()):
            operator = found.operator
            if (old := self._plan.origins.get(number)) is not None:
                operator = self._described(old)._replace(number=number)
            operators.append(operator)
        return operators

    def _described(self, number: int) -> StatefulOperator:
        folder = f"state/{number}/_metadata"
        versions = [p for p in self._small if p.startswith(f"{folder}/v2/")]
        newest = max(versions, key=lambda path: int(path.rpartition("/")[2]), default=None)
        text = self._small.get(newest or f"{folder}/metadata")
        if text is None:
            raise DamageError(
                f"checkpoint {self._chosen.checkpoint_id} does not say what operator {number} is",
                where=self._store.url,
            )
        return parse_description(number, text.decode(errors="replace"))

    # Spark's logs

    def _ids(self, empty: EmptyState) -> dict[int, list[list[str]]] | None:
        """The ids of the state files of every operator, in checkpoint format 2."""
        _, before = self._commit
        if before is None:
            return None
        ids = {new: before[old] for new, old in self._plan.origins.items() if old in before}
        for number in self._plan.empty:
            ids[number] = empty.operators[number].ids or []
        return dict(sorted(ids.items()))

    def _log_entries(
        self, batch: int, leaves: Sequence[str], ids: Mapping[int, list[list[str]]] | None
    ) -> Contents:
        """The entries of a batch in Spark's two logs, for the leaves and operators of now."""
        entries: Contents = {}
        if (offsets := self._small.get(f"offsets/{batch}")) is not None:
            text = reordered(offsets.decode(), self._chosen.leaves or [], leaves)
            entries[f"offsets/{batch}"] = text.encode()
        if (commit := self._small.get(f"commits/{batch}")) is not None:
            watermark, had = parse_commit(commit.decode())
            # nothing reads the ids of an earlier batch
            text = commit_text(watermark, ids if had is not None else None)
            entries[f"commits/{batch}"] = text.encode()
        return entries

    # the manifest

    def _manifest(
        self,
        identity: PipelineIdentity,
        placed: PlacedState,
        versions: list[int],
    ) -> CheckpointManifest:
        chosen, sinks = self._chosen, self._plan.sinks
        structure = json.loads(canonical_json(identity.structure))
        leaves = set(identity.leaves)
        again = chosen.replace(
            checkpoint_id=self._store.next_id(),
            timestamp_ms=time.time_ns() // 1_000_000,
            source_offsets={n: at for n, at in chosen.source_offsets.items() if n in leaves},
            source_watermarks={n: at for n, at in chosen.source_watermarks.items() if n in leaves},
            source_names=sorted(leaves),
            sink_names=list(identity.sinks),
            # of a sink at a new target nothing is said: it begins with the next epoch
            sink_epochs=_of(sinks, chosen.sink_epochs),
            sink_commit_statuses=_of(sinks, chosen.sink_commit_statuses),
            table_offsets=dict(identity.tables),
            operator_states=placed.operator_states,
            state_checkpoint=None,
            state_versions=versions,
            pipeline_hash=identity.config_hash,
            size_bytes=placed.size,
            is_incremental=False,
            parent_id=chosen.checkpoint_id,
            state_checksum=None,
        )
        return again.with_extra(
            shown_as=shown_timeline(chosen),
            abandoned=sorted(abandoned_timelines(chosen)),
            added_bytes=placed.added_bytes or None,
            restore_bytes=placed.restore_size,
            shared_objects=[list(each) for each in placed.shared_objects] or None,
            structure=structure,
            leaves=list(identity.leaves),
            sink_guarantees=dict(identity.guarantees),
            sink_committables=_of(sinks, chosen.sink_committables or {}),
            read_points=_of(sinks, chosen.read_points or {}) or None,
            output_digests=carried_digests(chosen, structure),
            upgrade={
                "from": chosen.checkpoint_id,
                "rows": [[row.what, row.name, row.fate.value, row.why] for row in self._plan.rows],
            },
        )


def _of(sinks: Collection[str], by_sink: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in by_sink.items() if name in sinks}


def _entry(small: Mapping[str, bytes], batch: int) -> OffsetLogEntry:
    data = small.get(f"offsets/{batch}")
    if data is None:
        raise DamageError(f"the checkpoint has no entry of Spark's offset log for batch {batch}")
    return parse_offsets(data.decode())


def _require_kinds(declared: Iterable[str], numbered: Mapping[int, str], where: str) -> None:
    """:class:`RefusedError` unless the operators of a plan are numbered as they are declared."""
    kinds = [str(text).partition(": ")[2] for text in declared]
    found = [_KINDS.get(numbered[number], numbered[number]) for number in sorted(numbered)]
    expected = [
        kind.replace("transformWithStateInPandas", "transformWithState").replace(
            "aggregation for except", "aggregation"
        )
        for kind in kinds
    ]
    if sorted(numbered) != list(range(len(kinds))) or found != expected:
        raise RefusedError(
            f"it is not known which state belongs to which operator in {where}",
            where=f"declared: {', '.join(expected) or 'none'}; found: {', '.join(found) or 'none'}",
            hint="Nothing was changed. Undo the change, or give the changed pipeline a store of "
            "its own.",
        )


def _renumbered(path: str, old: str, data: bytes) -> bytes:
    """A file whose operator has got another number: its description names that."""
    before, after = _STATE.fullmatch(old), _STATE.fullmatch(path)
    if before is None or after is None or before[1] == after[1]:
        return data
    if not after[2].startswith("_metadata/"):
        return data
    head, _, body = data.decode().partition("\n")
    fields = json.loads(body.replace(f"/state/{before[1]}/", f"/state/{after[1]}/"))
    fields["operatorInfo"]["operatorId"] = int(after[1])
    return f"{head}\n{json.dumps(fields, separators=(',', ':'))}".encode()
