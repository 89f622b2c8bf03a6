"""What a pipeline is: as a structure that can be compared with what it was, and as a page of text.

The structure is made of names, formats, targets, columns, options that are known to be harmless,
and what stateful operators compute. Settings that only say how fast something runs are not part of
it, and nothing secret is.

Tests: ``tests/pipeline/test_compatibility.py``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from seamark.capture.declared_inputs import DeclaredInput
from seamark.manifest import ConnectorCheckpoint
from seamark.pipeline.declaration.compile import Compiled
from seamark.pipeline.declaration.computed_changes import operator_text
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.declaration.watermarks import watermark_text, which_counts
from seamark.progress.configuration import canonical_json, config_hash
from seamark.sinks.contract import Sink
from seamark.sources.position_looks import PositionLook
from seamark.sources.recognition import other_origins
from seamark.spark.batch_log import SHUFFLE_PARTITIONS
from seamark.spark.kafka.positions import Topics
from seamark.spark.kafka.subscriptions import Subscription
from seamark.spark.plans.computation import FORM
from seamark.spark.plans.lossy_options import (
    CHECKS_OPERATORS,
    CHECKS_STATE,
    SESSION_SETTINGS,
    SKIPS_NULLS,
    STATE_SETTINGS,
    lossy_options,
    recorded_losses,
)
from seamark.spark.plans.parsing_options import PARSING
from seamark.spark.plans.plan import SourceInfo, WatermarkInfo
from seamark.spark.plans.value_settings import SETTINGS, value_settings
from seamark.spark.source_folders import other_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Structure = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PipelineIdentity:
    """What does not change during a run."""

    name: str
    structure: Structure
    leaves: tuple[str, ...]
    lines_of_folders: tuple[int, ...] = ()
    """See :attr:`first_lines`; empty when each source has one folder."""
    read_apart: tuple[str, ...] = ()
    """Sources that are joined with themselves."""
    watermarks: tuple[WatermarkInfo, ...] = ()
    sinks: tuple[str, ...] = ()
    target_names: Mapping[str, str] = field(default_factory=dict)
    """By output that was renamed: the name under which its target knows it."""
    tables: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    guarantees: Mapping[str, str] = field(default_factory=dict)
    """What a reader of each sink can rely on, as text."""
    spark_version: str = ""
    topics: Mapping[str, Topics] = field(default_factory=dict)
    """By source that the start has looked at: what Kafka says about each topic."""
    topics_again: Callable[[], Mapping[str, Topics]] | None = None
    """Asks Kafka for them once more."""
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By source: topics that its options name and Kafka does not know."""
    looks: Mapping[str, PositionLook] = field(default_factory=dict)
    """By source: asks it whether it can go on from a line of the offset log; not for Kafka."""
    folders: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source: the id of the folder that it reads."""
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source: the id of the SQL table that it reads, or of what else it has read before."""
    input_folders: Mapping[str, str] = field(default_factory=dict)
    """By source of files: the URI of the folder that all of them are below."""
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    """By Kafka source: the topics that it is declared to read."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where sources are read from, to be named in errors."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """The servers of each Kafka source."""
    consumer_group: str | None = None
    """Kafka's group in which offsets are stored for its own tools."""

    @cached_property
    def config_hash(self) -> int:
        """One number for the structure."""
        return config_hash(self.structure)

    @cached_property
    def stored_structure(self) -> Structure:
        """The structure as a manifest holds it: nothing but what JSON has."""
        stored: Structure = json.loads(canonical_json(self.structure))
        return stored

    @property
    def source_ids(self) -> dict[str, dict[str, str]]:
        """By source: the id of each topic or folder; a new one of the same name has another one."""
        topics = {
            source: {name: facts.topic_id for name, facts in topics.items()}
            for source, topics in self.topics.items()
        }
        others = {**self.folders, **self.origins}
        return {**topics, **{source: dict(ids) for source, ids in others.items()}}

    def source_ids_after(
        self,
        before: Mapping[str, Any] | None,
        late: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The ids that a checkpoint records; ``before`` has those of the one that it follows.

        A start that did not look at a source knows no ids. It goes on in what was read before.
        ``late`` has those of topics that came after the start.
        """
        known, before = self.source_ids, before or {}
        found = {name: known.get(name, before.get(name)) for name in dict.fromkeys(self.leaves)}
        found |= {name: {**known[name], **ids} for name, ids in late.items() if name in known}
        return {name: ids for name, ids in found.items() if ids}

    def other_places(self, before: Mapping[str, Any]) -> list[str]:
        """Folders and tables that are others than in a checkpoint with these ids, in words."""
        return [*other_folders(before, self.folders), *other_origins(before, self.origins)]

    def name_at_target(self, output: str) -> str:
        """The name under which the target of an output knows it."""
        return self.target_names.get(output, output)

    @property
    def first_lines(self) -> list[int]:
        """By the number of each folder below ``sources/``: its first line of the offset log.

        A source that is joined with itself has several.
        """
        by_name = [self.leaves.index(name) for name in dict.fromkeys(self.leaves)]
        return list(self.lines_of_folders) or by_name

    @property
    def inputs(self) -> list[DeclaredInput | None]:
        """By the number of each folder below ``sources/``: what may be read there."""
        return self.inputs_of(self.leaves, self.first_lines)

    def inputs_of(
        self, leaves: Sequence[str], first_lines: Iterable[int]
    ) -> list[DeclaredInput | None]:
        """The same for a checkpoint in which the sources had another order."""
        return [self._input(leaves, line) if line < len(leaves) else None for line in first_lines]

    def _input(self, leaves: Sequence[str], first: int) -> DeclaredInput:
        name = leaves[first]
        others = (line for line, leaf in enumerate(leaves) if leaf == name and line != first)
        lines, topics = (first, *others), self.subscriptions.get(name)
        return DeclaredInput(name, self.input_folders.get(name), lines, topics)


@dataclass(frozen=True, kw_only=True)
class DeclaredPipeline:
    """A pipeline that is declared and compiled: its query, its identity and how it runs."""

    compiled: Compiled
    identity: PipelineIdentity
    settings: PipelineSettings
    output_mode: str = "append"
    adopted: PipelineIdentity | None = None
    """Of a pipeline with nothing but the output that an adopted query has become."""


def structure_of(
    name: str,
    output_mode: str,
    sources: Mapping[str, SourceInfo],
    compiled: Compiled,
    spark: SparkSession,
) -> Structure:
    """The structure of a compiled pipeline and of what its session decides."""
    read, conf = dict.fromkeys(compiled.leaves), spark.conf
    session = lossy_options({key: conf.get(key, None) or "" for key in SESSION_SETTINGS})
    return {
        "name": name,
        "output_mode": output_mode,
        "state_partitions": int(conf.get(SHUFFLE_PARTITIONS) or 0) if compiled.is_stateful else 0,
        "sources": {
            source: {
                "format": sources[source].format,
                "options": sources[source].options,
                "may_lose": {
                    **sources[source].may_lose,
                    **_by_session(source, sources[source], compiled, session),
                },
                **({PARSING: parsing} if (parsing := sources[source].parsing) else {}),
            }
            for source in read
        },
        "sinks": {
            output.name: {
                **described_sink(output.sink),
                "columns": [[f.name, f.dataType.simpleString()] for f in output.df.schema.fields],
            }
            for output in compiled.outputs
        },
        "operators": list(compiled.operators),
        "form": FORM,
        "computes": compiled.computes,
        "shares": compiled.shares,
        "reads": {name: sorted(compiled.sources_of[name]) for name in compiled.stateful_branches},
        SETTINGS: value_settings(spark),
    }


def described_sink(sink: Sink) -> dict[str, Any]:
    """What a sink is and where it writes, as a structure has it."""
    described = sink.describe()
    return {
        "kind": described.kind,
        "target": described.target,
        "options": dict(described.options),
    }


def _by_session(
    name: str, source: SourceInfo, compiled: Compiled, session: Mapping[str, str]
) -> dict[str, str]:
    """The settings of the session by which rows of a source may get lost."""
    found = {
        key: value
        for key, value in session.items()
        if key not in STATE_SETTINGS and source.reads_files
    }
    branches = [text.partition(": ")[::2] for text in compiled.operators]
    for branch, kind in branches:
        if name not in compiled.sources_of[branch]:
            continue
        if SKIPS_NULLS in session and kind == "stream-stream join":
            found[SKIPS_NULLS] = session[SKIPS_NULLS]
        several = sum(other == branch for other, _ in branches) > 1
        if CHECKS_OPERATORS in session and several:
            found[CHECKS_OPERATORS] = session[CHECKS_OPERATORS]
        if CHECKS_STATE in session:
            found[CHECKS_STATE] = session[CHECKS_STATE]
    return found


def explanation(declared: DeclaredPipeline, sources: Mapping[str, SourceInfo]) -> str:
    """Sources, operators, watermarks, sinks and guarantees of a compiled pipeline."""
    compiled, identity = declared.compiled, declared.identity
    structure = identity.structure
    lines = [
        f"Pipeline {identity.name} · {structure['output_mode']} mode · "
        f"hash {config_hash(structure):016x}"
    ]
    lines += ["", "Sources"]
    for name, times in Counter(compiled.leaves).items():
        info = sources[name]
        options = ", ".join(f"{key}={value}" for key, value in info.options.items())
        read = "read once an epoch" if times == 1 else f"read {times} times an epoch"
        lines.append(f"  {name:<14} {info.format}{f' ({options})' if options else ''} · {read}")
        lines += [" " * 17 + info.begins] if info.begins else []
    lines += ["", "State"]
    lines += list(_state(compiled)) or ["  none: nothing is kept"]
    for branch in compiled.branches:
        first, *others = [compiled.outputs[number].name for number in branch.outputs]
        if branch.shared is not None:
            what = "state" if branch.shared.keeps_state else "random rows"
            lines.append(f"  {first} shares its {what} with {', '.join(others)}")
    if compiled.operators:
        lines.append(f"  in {structure['state_partitions']} partitions")
    lines += ["", "Watermark"]
    lines += _watermarks(compiled)
    lines += ["", "Sinks"]
    for output in compiled.outputs:
        described = output.sink.describe()
        reads = ", ".join(compiled.sources_of[output.name])
        lines.append(
            f"  {output.name:<14} {described.kind} {described.target} · from {reads} · "
            f"{output.sink.guarantee.value}"
        )
        if not output.sink.guarantee.is_transactional:
            lines.append(" " * 17 + "outside the epoch's atomic commit")
    lines += [f"\nNote: {text}" for text in [*compiled.warnings, *recorded_losses(structure)]]
    if compiled.python_functions:
        names = ", ".join(compiled.python_functions)
        lines.append(
            f"\nNote: what Python functions do is not compared between starts, only their names "
            f"({names})"
        )
    return "\n".join(lines)


def _state(compiled: Compiled) -> Iterator[str]:
    for name, operators in compiled.computes.items():
        for operator in operators:
            if operator["operator"] != "watermark":
                yield f"  {name}: {operator['operator']}{operator_text(operator)}"


def _watermarks(compiled: Compiled) -> list[str]:
    if not compiled.watermarks:
        return ["  none"]
    lines = [f"  {watermark_text(mark)}, later rows are dropped" for mark in compiled.watermarks]
    if len({mark.counts for mark in compiled.watermarks}) > 1:
        lines.append(f"  {which_counts(compiled.watermark_policy)}")
    return lines
