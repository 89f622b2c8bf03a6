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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from seamark.capture.checkpoint_contents import Chain, PlacedState, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex
from seamark.capture.movers import Contents
from seamark.checkpoint_dir.operators import (
    StatefulOperator,
    description_path,
    parse_description,
)
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, OutcomeUnknownError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import DeclaredPipeline, PipelineIdentity
from seamark.pipeline.declaration.upgrade_plan import UpgradePlan
from seamark.pipeline.epoch.output_digests import carried_digests
from seamark.pipeline.epoch.save_with_retry import save_with_retry
from seamark.pipeline.recovery.carried_plans import reordered
from seamark.pipeline.recovery.empty_state import EmptyState, empty_state
from seamark.pipeline.recovery.operator_numbers import STATE_PATH, renumbered, require_kinds
from seamark.pipeline.recovery.rescale import StoredState, Workshop, rescaled
from seamark.pipeline.recovery.rollback import abandoned_timelines, shown_timeline
from seamark.pipeline.recovery.value_rewrite import (
    RewrittenState,
    StateOfOperator,
    new_columns,
    rewritten_state,
)
from seamark.pipeline.recovery.working_dirs import scratch_name
from seamark.progress.configuration import canonical_json
from seamark.spark.batch_log import (
    SHUFFLE_PARTITIONS,
    OffsetLogEntry,
    commit_text,
    log_text,
    parse_commit,
    parse_offsets,
)
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG

_DESCRIPTION: Final = re.compile(r"state/([0-9]+)/_metadata/v2/([0-9]{1,18})")
_SOURCE: Final = re.compile(r"sources/([0-9]+)/(.+)")
_LOG_ENTRY: Final = re.compile(r"(offsets|commits)/([0-9]+)")


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
        self._take(StoredState(chosen.batch, chain.index, chain.small))

    def _take(self, state: StoredState) -> None:
        """Go on from this state."""
        self._state, self._index, self._small = state, state.index, state.small
        self._offsets = _entry(state.small, state.batch)
        path = f"commits/{state.batch}"
        self._commit = parse_commit(log_text(path, state.small.get(path, b"")))

    def refuse_if_begun(self, ahead: Mapping[str, int]) -> None:
        """:class:`RefusedError` when the next epoch has begun in the pipeline as it was.

        ``ahead`` are sinks that show later epochs, and up to which.
        """
        epoch = self._chosen.epoch
        # that of the owner is another one after an upgrade that failed, or whose checkpoint is lost
        timelines = {self._chosen.timeline or "", self._store.owner().timeline}
        begun = {n for each in timelines for n in self._store.plans.epochs_after(each, epoch)}
        if ahead or begun:
            shown = (f"{sink} shows epoch {number}" for sink, number in ahead.items())
            raise RefusedError(
                f"epoch {epoch + 1} was begun, and sinks may show it",
                where="; ".join(shown) or self._store.url,
                hint="Start once with the pipeline as it was, then change it. If checkpoints were "
                "lost, restore the store from a copy first, or roll the pipeline back.",
            )

    def empty_state(self, declared: DeclaredPipeline, place: WorkingCopy) -> EmptyState:
        """Empty state of every operator, of the kind that the checkpoint has. Made by Spark."""
        pinned = self._pinned
        if self._plan.partitions is not None:
            pinned[SHUFFLE_PARTITIONS] = str(self._plan.partitions)
        _, ids = self._commit
        # the store need not be claimed yet: the start that claims it next removes what is left
        scratch = place.below(scratch_name("upgrade", self._store.owner().generation))
        return empty_state(declared, scratch, pinned=pinned, format_2=ids is not None)

    @property
    def _pinned(self) -> dict[str, str]:
        """Spark's settings that the checkpoint has pinned."""
        return {str(name): str(value) for name, value in self._offsets.conf.items()}

    def require_possible(self, declared: DeclaredPipeline, empty: EmptyState) -> None:
        """:class:`RefusedError` for what only Spark's plans and the state itself can tell."""
        self._require_numbers(declared.identity, empty)
        targets = self._targets(declared.identity)
        for path in self._index.files:
            targets(path)
        self._log_entries(self._chosen.batch, declared.identity.leaves, None)
        for number in self._plan.rewritten:
            self._new_columns(number, empty)

    def save(
        self, declared: DeclaredPipeline, empty: EmptyState, workshop: Workshop
    ) -> CheckpointManifest:
        """Save the new checkpoint in a new timeline; that is the decision.

        State that has to be written again is written in folders of their own in the workshop.
        """
        identity, settings = declared.identity, declared.settings
        self.require_possible(declared, empty)
        try:
            self._rescale(workshop)
            rewritten = {
                number: self._rewritten(number, empty, workshop) for number in self._plan.rewritten
            }
            captured, index = self._rearranged(identity, empty, rewritten)
            # what no start could read must not be decided
            index.after((), captured.stored).check()
            placed = place(captured, settings.sizes, workshop.uploads, index)
            self._store.begin_timeline()
            manifest = self._manifest(identity, placed, captured.versions)
            return save_with_retry(self._store, manifest, placed.chunks, settings.store_timeout)
        except OutcomeUnknownError:
            raise
        except Exception:
            workshop.uploads.discard()
            raise

    def _rescale(self, workshop: Workshop) -> None:
        """Have the state that goes on in as many partitions as the plan says."""
        partitions = self._plan.partitions
        if partitions is None or partitions == self._offsets.state_partitions:
            return
        operators = [self._described(old) for old in sorted(set(self._plan.origins.values()))]
        self._take(rescaled(self._state, operators, partitions, workshop))

    def _require_numbers(self, identity: PipelineIdentity, empty: EmptyState) -> None:
        """Refuse unless the numbers in both plans are those that the structures tell."""
        before = dict(self._operators_before())
        declared = (self._chosen.structure or {}).get("operators", [])
        require_kinds(declared, before, f"checkpoint {self._chosen.checkpoint_id}")
        after = {number: found.operator.name for number, found in empty.operators.items()}
        require_kinds(identity.structure["operators"], after, "Spark's plan")

    def _operators_before(self) -> Iterator[tuple[int, str]]:
        for label in self._index.operators:
            number, _, name = label.partition("-")
            yield int(number), name

    # state with other columns

    def _new_columns(self, number: int, empty: EmptyState) -> list[Any]:
        change = self._plan.rewritten[number]
        return new_columns(self._state_of(change.origin), change, empty.operators[number])

    def _rewritten(self, number: int, empty: EmptyState, workshop: Workshop) -> RewrittenState:
        return rewritten_state(
            self._state_of(self._plan.rewritten[number].origin),
            self._new_columns(number, empty),
            empty.operators[number],
            workshop,
        )

    def _state_of(self, number: int) -> StateOfOperator:
        _, ids = self._commit
        return StateOfOperator(
            number=number,
            version=self._chosen.epoch,
            index=self._index,
            small=self._small,
            ids=None if ids is None else ids.get(number, []),
            pinned=self._pinned,
        )

    # files

    def _rearranged(
        self,
        identity: PipelineIdentity,
        empty: EmptyState,
        rewritten: Mapping[int, RewrittenState],
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
                small[path] = renumbered(path, old, data)
        version = self._chosen.epoch
        ids = self._ids(empty, rewritten)
        for batch in (self._chosen.batch, self._chosen.batch - 1):
            small |= self._log_entries(batch, identity.leaves, ids)
        for number in self._plan.empty:
            small |= empty.files_at(number, version)
        added = self._state.added
        stored = {path: file for old, file in added.items() for path in targets(old)}
        for number, state in rewritten.items():
            small |= empty.operators[number].descriptions | state.small
            stored |= state.stored
        operators = self._operators(empty)
        labels = {operator.number: operator.label for operator in operators}
        files: dict[str, Contents] = {label: {} for label in labels.values()}
        for path, data in small.items():
            match = STATE_PATH.fullmatch(path)
            is_state = match is not None and "/_" not in path
            label = labels[int(match[1])] if match is not None and is_state else LOG
            files.setdefault(label, {})[path] = data
        most = max((operator.partitions for operator in operators), default=0)
        captured = Captured(files=files, stored=stored, is_full=True, versions=[version] * most)
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
            if match := STATE_PATH.fullmatch(path):
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
        versions = [
            int(match[2])
            for match in map(_DESCRIPTION.fullmatch, self._small)
            if match is not None and match[1] == str(number)
        ]
        text = self._small.get(description_path(number, versions))
        if text is None:
            raise DamageError(
                f"checkpoint {self._chosen.checkpoint_id} does not say what operator {number} is",
                where=self._store.url,
            )
        return parse_description(number, text)

    # Spark's logs

    def _ids(
        self, empty: EmptyState, rewritten: Mapping[int, RewrittenState]
    ) -> dict[int, list[list[str]]] | None:
        """The ids of the state files of every operator, in checkpoint format 2."""
        _, before = self._commit
        if before is None:
            return None
        ids = {new: before[old] for new, old in self._plan.origins.items() if old in before}
        for number in self._plan.empty:
            ids[number] = empty.operators[number].ids or []
        for number, state in rewritten.items():
            ids[number] = state.ids or []
        return dict(sorted(ids.items()))

    def _log_entries(
        self, batch: int, leaves: Sequence[str], ids: Mapping[int, list[list[str]]] | None
    ) -> Contents:
        """The entries of a batch in Spark's two logs, for the leaves and operators of now."""
        entries: Contents = {}
        if (offsets := self._small.get(f"offsets/{batch}")) is not None:
            text = reordered(
                log_text(f"offsets/{batch}", offsets), self._chosen.leaves or [], leaves
            )
            entries[f"offsets/{batch}"] = text.encode()
        if (commit := self._small.get(f"commits/{batch}")) is not None:
            watermark, had = parse_commit(log_text(f"commits/{batch}", commit))
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
            state_partitions=self._plan.partitions or chosen.state_partitions,
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
            target_names=dict(identity.target_names) or None,
            sink_committables=_of(sinks, chosen.sink_committables or {}),
            read_points=_of(sinks, chosen.read_points or {}) or None,
            output_digests=carried_digests(chosen, structure, sinks),
            upgrade={
                "from": chosen.checkpoint_id,
                "rows": [[row.what, row.name, row.fate.value, row.why] for row in self._plan.rows],
            },
        )


def _of(sinks: Mapping[str, str], by_sink: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the sinks that go on, under the names that they have now."""
    return {name: by_sink[old] for name, old in sinks.items() if old in by_sink}


def _entry(small: Mapping[str, bytes], batch: int) -> OffsetLogEntry:
    data = small.get(f"offsets/{batch}")
    if data is None:
        raise DamageError(f"the checkpoint has no entry of Spark's offset log for batch {batch}")
    return parse_offsets(log_text(f"offsets/{batch}", data))
