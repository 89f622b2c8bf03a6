"""A start of a pipeline that has changed, or that a query becomes a part of.

Everything that can be refused is refused before the store is claimed. Then the checkpoint of the
changed pipeline is made.

Tests: ``tests/pipeline/test_adopted_upgrades.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from seamark._common.logs import logger_named
from seamark.capture.restore import FetchAll
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compatibility import (
    as_check,
    refuse_if_incompatible,
    upgrade_of,
)
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.declaration.upgrade_plan import UpgradePlan
from seamark.pipeline.recovery.adopted_checkpoint import require_adoptable, save_adopted
from seamark.pipeline.recovery.adoption import fitting_batch, refusing_what_is_gone
from seamark.pipeline.recovery.begun_batch import require_answered
from seamark.pipeline.recovery.empty_state import EmptyState
from seamark.pipeline.recovery.moved_state import Moves
from seamark.pipeline.recovery.rescale import Workshop
from seamark.pipeline.recovery.starting_point import LongWork
from seamark.pipeline.recovery.upgrade import Upgrade
from seamark.store import CheckpointStore
from seamark.store.inspection import newest_checkpoint

log = logger_named("seamark.pipeline")


class PipelineChanges:
    """What one start changes."""

    def __init__(
        self,
        declared: DeclaredPipeline,
        store: CheckpointStore,
        place: WorkingCopy,
        adopt: WorkingCopy | None,
        long_work: LongWork,
        fetch_all: FetchAll | None = None,
    ) -> None:
        self._declared = declared
        self._store = store
        self._place = place
        self._adopt = adopt
        self._long_work = long_work
        self._fetch_all = fetch_all
        self._empty: EmptyState | None = None
        """What Spark has made before the claim."""
        self.moves: Moves | None = None
        """What has got other numbers, when this start has made an upgrade."""

    @property
    def adopts(self) -> str:
        """The directory of a query that becomes one of several outputs; empty for none."""
        is_one = self._declared.adopted is not None and self._adopt is not None
        return self._adopt.root if is_one and self._adopt is not None else ""

    def refuse_impossible(self, plan: UpgradePlan | None) -> None:
        """Refuse what cannot be done, by what Spark and the directory say; claims nothing."""
        newest = newest_checkpoint(self._store)
        if newest is None:
            if not self._store.list_ids():  # else the start says what has become of them
                self.begun_by_adopted()
                self._refuse_adoption()
        elif plan is not None:
            self._refuse_upgrade(newest, plan)

    def _refuse_upgrade(self, newest: CheckpointManifest, plan: UpgradePlan) -> None:
        try:
            upgrade = Upgrade(self._store, newest, plan)
            self._empty = upgrade.empty_state(self._declared, self._place)
            upgrade.require_possible(self._declared, self._empty)
        except DamageError as error:
            # the start itself says so, or finds another checkpoint
            log.warning("checkpoint %s is damaged: %s", newest.checkpoint_id, error)

    def _refuse_adoption(self) -> None:
        adopted, identity = self._declared.adopted, self._declared.identity
        if adopted is None or self._adopt is None:
            return
        require_adoptable(self._adopt, adopted)
        if adopted.structure == identity.structure:
            return
        alone = CheckpointManifest.new(1, epoch=1).with_extra(structure=adopted.stored_structure)
        plan = upgrade_of(alone, identity, self._declared.settings.upgrade)
        refuse_if_incompatible(self._store, as_check(plan))

    def adopted(self) -> CheckpointManifest:
        """The first checkpoint: the query as a pipeline of one output."""
        adopted, settings = self._declared.adopted, self._declared.settings
        if adopted is None or self._adopt is None:
            raise InvalidInputError("there is no query to adopt")
        return save_adopted(self._store, self._adopt, adopted, settings)

    def begun_by_adopted(self) -> list[str]:
        """What becomes of a batch that the adopted query has not finished, in words.

        :class:`RefusedError` when a sink may have its rows, and nobody has said that it runs again.
        """
        if self._adopt is None:
            return []
        sinks = [output.sink for output in self._declared.compiled.outputs]
        return require_answered(self._adopt, sinks, self._declared.settings.adopt_begun)

    def refuse_reset(self) -> None:
        """Refuse to start over where that begins with a query that cannot be adopted any more."""
        if self._adopt is not None:
            self.begun_by_adopted()
            with refusing_what_is_gone(self._adopt):
                fitting_batch(self._adopt, self._declared.adopted or self._declared.identity)

    def refuse_if_begun(
        self, chosen: CheckpointManifest, plan: UpgradePlan, ahead: Mapping[str, int]
    ) -> None:
        """:class:`RefusedError` when an epoch after the chosen one was begun, as it was then."""
        Upgrade(self._store, chosen, plan).refuse_if_begun(ahead)

    def upgraded(
        self, chosen: CheckpointManifest, plan: UpgradePlan, ahead: Mapping[str, int]
    ) -> CheckpointManifest:
        """The first checkpoint of the changed pipeline, in a new timeline.

        ``ahead`` are sinks that show later epochs than the chosen one, and up to which.
        """
        upgrade = Upgrade(self._store, chosen, plan)
        upgrade.refuse_if_begun(ahead)
        empty = self._empty or upgrade.empty_state(self._declared, self._place)
        saved = upgrade.save(self._declared, empty, self._workshop())
        if plan.partitions is None:
            self.moves = Moves(plan.origins)
        return saved

    def _workshop(self) -> Workshop:
        shared = self._store.shared_objects
        return Workshop(
            spark=self._declared.compiled.df.sparkSession,
            place=self._place,
            shared=shared,
            uploads=Uploads(shared),
            long_work=self._long_work,
            fetch_all=self._fetch_all,
        )
