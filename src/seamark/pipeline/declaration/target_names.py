"""The name under which the target of each output knows it. Pure.

A target notes which output of which pipeline writes to it: in a folder, in a ledger, in the
properties of a table. An output that is renamed goes on at its target under the name that the
target has noted, so nothing there has to change, and an epoch that was decided before the rename is
finished as if there had been none.

Tests: ``tests/pipeline/test_target_names.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from seamark._common.checks import check_name
from seamark.errors import DamageError, InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import described

Sinks = Mapping[str, Mapping[str, Any]]
"""By output: its sink, as a structure describes it."""


_LEDGER: Final = "ledger"
"""The option of a sink that keeps beside its target what it has shown there."""


def has_same_target(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two sinks write to the same place, and look in one place for what they have shown.

    With another ledger a sink would show again what the old one says is shown.
    """
    ledgers = {_ledger_of(old), _ledger_of(sink_as_recorded(new, old))}
    return all(old.get(key) == new.get(key) for key in ("kind", "target")) and len(ledgers) == 1


def sink_as_recorded(new: Mapping[str, Any], old: Mapping[str, Any]) -> Mapping[str, Any]:
    """A sink without what an earlier Seamark has not recorded of it."""
    options = new.get("options")
    if not isinstance(options, dict) or _LEDGER not in options or _ledger_of(old) is not None:
        return new
    return {**new, "options": {key: options[key] for key in options if key != _LEDGER}}


def _ledger_of(sink: Mapping[str, Any]) -> object:
    options = sink.get("options")
    return options.get(_LEDGER) if isinstance(options, dict) else None


def kept_targets(before: Sinks, now: Sinks, renames: Mapping[str, str]) -> dict[str, str]:
    """By output that goes on at a target: the name of the output that wrote there before.

    ``renames`` is from old names to new ones. It may still be given when it is done already: so
    an output's own name comes first.
    """
    former = {new: old for old, new in renames.items()}
    return {
        name: old_name
        for name, sink in now.items()
        for old_name in (former.get(name, name), name)  # the last one that fits counts
        if old_name in before and has_same_target(before[old_name], sink)
    }


def target_names(
    checkpoint: CheckpointManifest | None,
    sinks: Sinks,
    renames: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """By output: the name that its target has noted, where that is not the output's own.

    ``sinks`` are those of the pipeline, ``renames`` is from old names to new ones.
    :class:`RefusedError` when two outputs would have one name at their targets, and
    :class:`DamageError` when the checkpoint holds what can be no name.
    """
    if checkpoint is None:
        return {}
    noted = _noted_in(checkpoint)
    kept = kept_targets(described(checkpoint, "sinks"), sinks, renames or {})
    names = {name: noted.get(kept[name], kept[name]) if name in kept else name for name in sinks}
    _require_distinct(names)
    return {name: at_target for name, at_target in names.items() if at_target != name}


def _noted_in(checkpoint: CheckpointManifest) -> dict[str, str]:
    noted = checkpoint.target_names or {}
    for name in noted.values():
        try:
            check_name(name, "sink name")
        except InvalidInputError as error:
            raise DamageError(
                f"checkpoint {checkpoint.checkpoint_id} names an output in a way that no output "
                f"can have: {error.what}",
                where=f"'target_names' of checkpoint {checkpoint.checkpoint_id}",
                hint="Restore the store from a copy, or roll the pipeline back to an earlier "
                "checkpoint.",
            ) from None
    return noted


def _require_distinct(names: Mapping[str, str]) -> None:
    counts = Counter(names.values())
    for name, at_target in names.items():
        if name != at_target and counts[at_target] > 1:
            raise RefusedError(
                f"the output {at_target!r} cannot have that name: the target of {name!r}, which "
                "was renamed, still knows it by this one",
                hint=f"Choose another name for the output {at_target!r}, or give {name!r} a new "
                "target.",
            )
