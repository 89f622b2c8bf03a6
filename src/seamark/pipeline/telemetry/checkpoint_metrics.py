"""The newest checkpoint as gauges: every figure that ``seamark show`` has about an epoch.

What needs a look at all files of the state is worked out when somebody reads it, not by an epoch.

Tests: ``tests/pipeline/test_checkpoint_metrics.py``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from seamark._common.logs import logger_named
from seamark.capture.checkpoint_contents import PlacedState
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex, objects_of
from seamark.checkpoint_dir.state_files import is_state
from seamark.manifest import CheckpointManifest
from seamark.pipeline.telemetry.metric_families import Labels, MetricFamilies, Series, Value
from seamark.reports.checkpoint_files import IndexedFiles
from seamark.reports.checkpoint_summary import positions
from seamark.spark.kafka.lag import recorded_ages, recorded_lag
from seamark.spark.kafka.positions import each_position
from seamark.spark.kafka.recorded_positions import lowest_position, recorded_lines
from seamark.store.index_parts import LOG

if TYPE_CHECKING:
    from prometheus_client import Gauge

log = logger_named("seamark.pipeline")

STATUSES: Final = ("Committed", "Failed", "Pending")
MOST_POSITIONS: Final = 10_000
"""Of one source. Names of positions are up to the source, and a scrape has to stay small."""

CHAIN_ENDED: Final = 1 << 30
"""More links than any chain has: the next checkpoint is a full one."""


@dataclass(frozen=True, kw_only=True)
class NewestCheckpoint:
    """A checkpoint, and what is known about it besides its manifest."""

    manifest: CheckpointManifest
    links: int = 0
    """How many checkpoints it builds on."""
    files: IndexedFiles | None = None
    """Where its files are; None when that is not known."""
    is_new_known: bool = True
    """Whether it is known which of them are new in it."""


def stored_files(index: FileIndex, captured: Captured, placed: PlacedState) -> IndexedFiles:
    """The files of a checkpoint that was just saved, and those that were stored for it."""
    new = {**captured.stored, **placed.files}
    operators = [label for label in captured.files if label != LOG]
    objects = frozenset(objects_of(new.values()))
    return IndexedFiles(FileIndex(index.files, operators), new.keys(), objects)


class CheckpointGauges:
    """Tells the gauges of one pipeline about its newest checkpoint."""

    def __init__(self, families: MetricFamilies, series: Series) -> None:
        self._families = families
        self._series = series

    def tell(self, newest: NewestCheckpoint) -> None:
        """Set all gauges about a checkpoint; those that it has no figure for disappear."""
        self._tell_checkpoint(newest)
        self._tell_watermarks(newest.manifest)
        self._tell_sinks(newest.manifest)
        self._tell_sources(newest.manifest)
        self._tell_files(newest)

    def _tell_checkpoint(self, newest: NewestCheckpoint) -> None:
        families, one, manifest = self._families, self._series.tell_one, newest.manifest
        one(families.checkpoint_id, manifest.checkpoint_id)
        one(families.checkpoint_epoch, manifest.epoch)
        one(families.checkpoint_at, manifest.timestamp_ms / 1000)
        one(families.checkpoint_full, not manifest.is_incremental)
        one(families.checkpoint_parents, newest.links if newest.links < CHAIN_ENDED else None)
        one(families.checkpoint_gaps, len(manifest.gaps))
        one(families.added_bytes, manifest.size_bytes)
        one(families.restore_bytes, manifest.restore_bytes)
        one(families.state_partitions, manifest.state_partitions or None)

    def _tell_watermarks(self, manifest: CheckpointManifest) -> None:
        families, one = self._families, self._series.tell_one
        one(families.watermark, _seconds(manifest.watermark))
        # Spark has a next watermark, of 0, also where no operator asks for one
        following = manifest.next_watermark if manifest.watermark is not None else None
        one(families.next_watermark, _seconds(following))
        reached = {name: at / 1000 for name, at in manifest.source_watermarks.items()}
        self._series.tell(families.source_watermark, _labelled(reached))

    def _tell_sinks(self, manifest: CheckpointManifest) -> None:
        families, tell = self._families, self._series.tell
        guarantees, digests = manifest.sink_guarantees or {}, manifest.output_digests or {}
        statuses = manifest.sink_commit_statuses
        tell(families.sink_info, dict.fromkeys(guarantees.items(), 1))
        tell(
            families.sink_status,
            {
                (sink, kind.lower()): status.kind == kind
                for sink, status in statuses.items()
                for kind in STATUSES
            },
        )
        rows = {sink: each.rows for sink, each in digests.items()}
        total_rows = {sink: each.total_rows for sink, each in digests.items()}
        tell(families.sink_epoch, _labelled(manifest.sink_epochs))
        tell(families.sink_epoch_rows, _labelled(rows))
        tell(families.sink_history_rows, _labelled(total_rows))

    def _tell_sources(self, manifest: CheckpointManifest) -> None:
        families, tell = self._families, self._series.tell
        tell(families.source_offset, read_positions(manifest))
        tell(families.checkpoint_lag, _by_partition(manifest, recorded_lag(manifest)))
        tell(families.checkpoint_age, _by_partition(manifest, recorded_ages(manifest)))
        tables = {name: at.offsets for name, at in manifest.table_offsets.items()}
        tell(families.table_version, _numbers(tables, "version"))
        tell(families.table_files, _numbers(tables, "files"))

    def _tell_files(self, newest: NewestCheckpoint) -> None:
        families = self._families
        known = None if newest.files is None else FileFigures(newest.files)
        known_new = known if newest.is_new_known else None
        self._tell_of_all(families.object_bytes, known, "object_bytes")
        self._tell_of_all(families.referenced_bytes, known_new, "referenced_bytes")
        self._tell_by_operator(families.state_bytes, known, "bytes")
        self._tell_by_operator(families.state_new_bytes, known_new, "new_bytes")
        self._tell_by_operator(families.state_files, known, "files")
        self._tell_by_operator(families.state_largest, known, "largest_partition")

    def _tell_of_all(self, gauge: Gauge, known: FileFigures | None, name: str) -> None:
        value = None if known is None else partial(known.get, "", name)
        self._series.tell_one(gauge, value)

    def _tell_by_operator(self, gauge: Gauge, known: FileFigures | None, name: str) -> None:
        values: dict[Labels, Value] = {}
        if known is not None:
            values = {(each,): partial(known.get, each, name) for each in known.operators}
        self._series.tell(gauge, values)


class FileFigures:
    """What the files of one checkpoint add up to; worked out once, by whoever asks first."""

    def __init__(self, files: IndexedFiles) -> None:
        self._files: IndexedFiles | None = files
        self._lock = threading.Lock()
        self._figures: dict[str, dict[str, float]] = {}
        self.operators = tuple(files.index.operators)
        """Whose figures can be asked for."""

    def get(self, operator: str, name: str) -> float:
        """A figure of an operator, or of all for an empty name; not a number if it is unknown."""
        with self._lock:
            files, self._files = self._files, None
            if files is not None:
                try:
                    self._figures = _figures_of(files)
                except Exception as error:  # noqa: BLE001 - a scrape must not fail of it
                    log.warning("the size of the state is not in the metrics: %s", error)
        return self._figures.get(operator, {}).get(name, float("nan"))


def _figures_of(files: IndexedFiles) -> dict[str, dict[str, float]]:
    """All figures, by operator. There may be very many files: each of them is looked at once."""
    sizes: Counter[tuple[str, str]] = Counter()
    counts: Counter[str] = Counter()
    for path, file in files.index.files.items():
        if is_state(path):
            _, number, partition, _ = path.split("/", 3)
            sizes[number, partition] += file.size
            counts[number] += 1
    figures: dict[str, dict[str, float]] = {}
    for operator in files.index.operators:
        number = operator.partition("-")[0]
        of_partitions = [size for (own, _), size in sizes.items() if own == number]
        figures[operator] = {
            "bytes": sum(of_partitions),
            "new_bytes": sum(_new_sizes(files, number)),
            "files": counts[number],
            "largest_partition": max(of_partitions, default=0),
        }
    figures[""] = {
        "referenced_bytes": files.referenced_bytes,
        "object_bytes": files.object_bytes,
    }
    return figures


def _new_sizes(files: IndexedFiles, number: str) -> Iterator[int]:
    """Sizes of the files of an operator that were stored for the checkpoint."""
    own = [path for path in files.new if is_state(path) and path.split("/", 2)[1] == number]
    for path in own:
        file = files.index.files.get(path)
        if file is not None and (file.shared is None or file.shared in files.new_objects):
            yield file.size


def read_positions(manifest: CheckpointManifest) -> dict[Labels, float]:
    """How far each source was read: by topic and partition for Kafka, else by the position's name.

    Positions that are no numbers, such as times, are left out, and so is a source with very many.
    """
    found: dict[Labels, float] = {}
    lines = recorded_lines(manifest)
    for source, named in positions(manifest.source_offsets).items():
        if len(named) > MOST_POSITIONS:
            continue
        offsets = lowest_position(lines.get(source, []))
        if offsets is not None:
            for topic, number, wanted in each_position(offsets):
                found[source, topic, str(number)] = wanted
            continue
        for name, value in named.items():
            if (at := _number(value)) is not None:
                found[source, "", name] = at
    return found


def _by_partition(
    manifest: CheckpointManifest, figures: Mapping[str, Mapping[str, float]]
) -> dict[Labels, float]:
    """Figures by source, topic and partition; they come as ``topic-partition``."""
    return {
        (source, topic, str(number)): by_name[f"{topic}-{number}"]
        for source, by_name in figures.items()
        for topic, number, _ in each_position(
            lowest_position(recorded_lines(manifest).get(source, [])) or {}
        )
        if f"{topic}-{number}" in by_name
    }


def _labelled(values: Mapping[str, float]) -> dict[Labels, float]:
    return {(name,): value for name, value in values.items()}


def _numbers(tables: Mapping[str, Mapping[str, str]], name: str) -> dict[Labels, float]:
    read = {table: _number(at.get(name)) for table, at in tables.items()}
    return _labelled({table: number for table, number in read.items() if number is not None})


def _number(value: object) -> float | None:
    text = value if isinstance(value, str) else ""
    is_number = len(text) <= len(str(1 << 64)) and text.removeprefix("-").isdecimal()
    return float(int(text)) if is_number and text.isascii() else None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
