"""Changing the number of state partitions of a stopped query.

Spark fixes the number with a query's first batch. From version 4.2 on its offline runner can write
the state of the last batch again as one more batch, which reads nothing: RocksDB only. For
HDFS-backed state the same batch is written here. Either way the rows of the new batch are held
against those of the last one. What cannot be done is refused before anything is touched.

The log of a file sink gets an entry of the new batch, which adds nothing. It is written between the
new batch's plan and its commit: from the one to the other Spark refuses to start the query, so it
never runs beside a log that is one batch before it or after it.

Tests: ``tests/native/test_repartition.py``, ``tests/native/test_file_sinks_on_spark.py``.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from seamark.capture.batches import newest_committed, read_query_id
from seamark.checkpoint_dir.closures import StoreClosure, has_one_partition, needs_of
from seamark.checkpoint_dir.operators import StatefulOperator
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.schema_paths import require_schemas_inside
from seamark.checkpoint_dir.state_files import closure
from seamark.checkpoint_dir.state_references import SNAPSHOT_REPAIR, require_version_inside
from seamark.errors import DamageError, InvalidInputError, RefusedError, SeamarkError
from seamark.native.repartition_rules import OLDEST, codec_of, impossible, is_rocksdb
from seamark.native.rewind.rewind import SinkPlan
from seamark.native.state_choice import FORMAT_VERSION, format_version, offsets_of
from seamark.native.state_rewrite import RowsDigest, StoreRows
from seamark.spark.batch_log import (
    SHUFFLE_PARTITIONS,
    OffsetLogEntry,
    parse_commit,
    with_partitions,
)
from seamark.spark.failures import is_of_spark, said_by
from seamark.spark.pinned_settings import require_known_settings
from seamark.spark.session import spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"

Digests = dict[tuple[int, str], RowsDigest]
"""The rows of each store, by operator and name."""


@dataclass(frozen=True, kw_only=True)
class Repartition:
    """What will be done."""

    batch: int
    """The last one that was committed."""
    new_batch: int
    partitions: int
    wanted: int
    operators: tuple[StatefulOperator, ...]
    size: int
    """Bytes of state that are read."""
    format_version: int
    is_rocksdb: bool
    codec: str = "lz4"
    """How files of HDFS-backed state are compressed."""
    alone: frozenset[int] = frozenset()
    """Operators without a key: all of their rows stay in one partition."""
    was_begun: bool = False
    """Whether an earlier run has started it and was interrupted."""

    def partitions_of(self, operator: int) -> int:
        """How many partitions an operator has afterwards."""
        return 1 if operator in self.alone else self.wanted


def require_runner(version: tuple[int, int]) -> None:
    """:class:`RefusedError` for a Spark that cannot do it."""
    if version < OLDEST:
        raise RefusedError(
            f"changing state partitions needs Spark {OLDEST[0]}.{OLDEST[1]} or newer, and this is "
            f"{version[0]}.{version[1]}",
            hint="Stop the query, upgrade its Spark to 4.2 or newer (pip install 'pyspark>=4.2,<5' "
            "here), run one batch with it, stop it again, and come back.",
        )


def plan_repartition(tree: Tree, partitions: int) -> Repartition:
    """What there is to do; :class:`RefusedError` with what is missing when it cannot be done."""
    if partitions < 1:
        raise InvalidInputError(f"a query cannot have {partitions} state partitions")
    read_query_id(tree)
    batch = newest_committed(tree)
    entry = offsets_of(tree, batch)
    begun = _begun(tree, batch, entry)
    operators = tuple(tree.operators())
    url = tree.directory.url
    if not operators:
        raise RefusedError(
            "this query keeps no state, so there is nothing to repartition",
            where=url,
            hint=f"Set {SHUFFLE_PARTITIONS} to {partitions} and start it.",
        )
    for operator in operators:
        require_schemas_inside(tree, operator.number)
    if (problem := impossible(entry.conf, operators)) is not None:
        raise RefusedError(problem.why, where=url, hint=problem.hint)
    if begun is None and entry.state_partitions == partitions:
        raise RefusedError(f"there are {partitions} state partitions already", where=url)
    if begun is not None and begun != partitions:
        raise RefusedError(
            f"an earlier change to {begun} partitions was interrupted, and has to be finished "
            "before another",
            where=url,
            hint=f"Finish it: seamark spark repartition {shlex.quote(url)} {begun} --yes, and "
            "--file-sink OUT or --no-file-sink as before",
        )
    alone = {each.number: each for each in operators if has_one_partition(tree, each)}
    if alone and is_rocksdb(entry.conf):
        raise _without_key(next(iter(alone.values())), url)
    needs = list(needs_of(tree, batch))
    _require_whole(needs, batch, entry.state_partitions, alone, url)
    paths = {path for need in needs for path in need.paths}
    return Repartition(
        batch=batch,
        new_batch=batch + 1,
        partitions=entry.state_partitions,
        wanted=partitions,
        operators=operators,
        size=tree.size_of(paths),
        format_version=format_version(tree, batch),
        is_rocksdb=is_rocksdb(entry.conf),
        codec=codec_of(entry.conf),
        alone=frozenset(alone),
        was_begun=begun is not None,
    )


def repartition(
    spark: SparkSession,
    directory: Directory,
    plan: Repartition,
    undo: str,
    sink: SinkPlan | None = None,
) -> int:
    """Do it and verify the result; how many state stores the new batch has.

    ``undo`` is shown to a user who is left with half of it. ``sink`` is what the log of the query's
    file sink lacks of the new batch. The settings of ``spark`` stay as they are.
    :class:`DamageError` when the new batch is not whole or has other rows.
    """
    require_runner(spark_version(spark))
    tree = Tree.of(directory)
    require_known_settings(tree, [plan.batch, plan.new_batch], spark)
    numbers = [operator.number for operator in plan.operators]
    for batch in (plan.batch, plan.new_batch):
        require_version_inside(tree, numbers, batch + 1, spark)
    session: Any = spark.newSession()
    session.conf.set(SNAPSHOT_REPAIR, "false")
    session.conf.set(FORMAT_VERSION, str(plan.format_version))  # Spark insists on it
    session.conf.set(_ADAPTIVE, "false")  # a partition without rows has to be written, too
    try:
        if plan.is_rocksdb:
            before = _digests(session, directory.uri, plan, plan.batch)
            if sink is not None:
                _begin(directory, plan, sink)  # the runner finishes it
            session._streamingCheckpointManager.repartition(directory.uri, plan.wanted)
        else:
            before = _write_batch(session, directory, plan, sink)
        stores = _verified(Tree.of(directory), plan, undo)
        after = _digests(session, directory.uri, plan, plan.new_batch)
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise _failed(error, Tree.of(directory), plan, undo) from error
    _require_same_rows(before, after, directory.url, undo)
    return stores


def _digests(session: SparkSession, uri: str, plan: Repartition, batch: int) -> Digests:
    """What the rows of each store are after a batch, the last one or the new one."""
    digests: Digests = {}
    for operator in plan.operators:
        is_new = batch == plan.new_batch
        partitions = plan.partitions_of(operator.number) if is_new else plan.partitions
        for store in operator.stores:
            rows = StoreRows(session, uri, batch, operator, store, raw=plan.is_rocksdb)
            digests[operator.number, store] = rows.digest(partitions)
    return digests


def _begin(directory: Directory, plan: Repartition, sink: SinkPlan | None) -> None:
    """From here on Spark refuses to start the query until the commit of the new batch is there."""
    entry = offsets_of(Tree.of(directory), plan.batch)
    directory.write(f"offsets/{plan.new_batch}", with_partitions(entry.text, plan.wanted).encode())
    if sink is not None:
        for name, text in sink.rewind.write.items():
            sink.log.write(name, text.encode())


def _write_batch(
    session: SparkSession, directory: Directory, plan: Repartition, sink: SinkPlan | None
) -> Digests:
    """Write the new batch of HDFS-backed state in the order of Spark's own runner."""
    commit = directory.read(f"commits/{plan.batch}")
    _begin(directory, plan, sink)
    written = {
        (operator.number, store): StoreRows(
            session, directory.uri, plan.batch, operator, store, raw=False
        ).write(directory.uri, plan.partitions_of(operator.number), plan.new_batch + 1, plan.codec)
        for operator in plan.operators
        for store in operator.stores
    }
    directory.write(f"commits/{plan.new_batch}", commit)
    return written


# what makes it impossible


def _begun(tree: Tree, batch: int, entry: OffsetLogEntry) -> int | None:
    """The partitions of a change that was interrupted; None when the last batch is finished.

    :class:`RefusedError` for a batch that was planned and not finished.
    """
    newest = tree.batches("offsets")[-1]
    if newest == batch:
        return None
    planned = offsets_of(tree, newest)
    if newest == batch + 1 and planned.state_partitions != entry.state_partitions:
        return planned.state_partitions
    raise RefusedError(
        f"batch {newest} was planned and not finished, and Spark wants it done first",
        where=f"{tree.directory.url}: committed up to batch {batch}",
        hint="Start the query with trigger(availableNow=True), wait until it has ended by itself, "
        "and come back.",
    )


def _without_key(operator: StatefulOperator, url: str) -> RefusedError:
    """Spark would move the state of such an operator to where it does not look for it."""
    return RefusedError(
        f"operator {operator.number} ({operator.name}) has one partition for all its rows, "
        "and Spark's runner would put its state where the query does not find it",
        where=url,
        hint="The query would continue with empty state, without an error. Move this operator, an "
        "aggregation without a key for example, into a query of its own; or make the query a "
        "pipeline, which can: Pipeline(…, adopt=…), then another number with policy='evolve'.",
    )


def _require_whole(
    needs: list[StoreClosure], batch: int, partitions: int, alone: Container[int], url: str
) -> None:
    partitions_seen: dict[int, int] = Counter(need.folder.operator for need in needs)
    for need in needs:
        number = need.folder.operator
        expected = (1 if number in alone else partitions) * len(need.operator.stores)
        if partitions_seen[number] != expected:
            raise RefusedError(
                f"operator {need.folder.operator} has {partitions} partitions, and Spark's own "
                f"notes say {need.operator.partitions}: a snapshot of it would not be whole",
                where=url,
                hint="It was repartitioned before. Start it with a new checkpointLocation instead.",
            )
        if need.problem is not None:
            raise DamageError(
                f"state of operator {need.folder.operator}, partition {need.folder.partition} "
                f"after batch {batch}: {need.problem}",
                where=url,
                hint=f"'seamark spark inspect {shlex.quote(url)}' shows what is wrong.",
            )


# afterwards


def _verified(tree: Tree, plan: Repartition, undo: str) -> int:
    problems = list(_problems(tree, plan))
    if problems:
        raise DamageError(
            f"batch {plan.new_batch}, which Spark has written, is not whole",
            where=f"{tree.directory.url}: {'; '.join(problems[:3])}",
            hint=f"Do not start the query. Go back: {undo}",
        )
    return sum(plan.partitions_of(op.number) * len(op.stores) for op in plan.operators)


def _problems(tree: Tree, plan: Repartition) -> Iterator[str]:
    """What the new batch lacks. It builds on nothing, so every store has a version of its own."""
    batch, commit = plan.new_batch, tree.read_text(f"commits/{plan.new_batch}")
    if commit is None:
        yield f"commits/{batch} is not there"
        return
    entry = offsets_of(tree, batch)
    if entry.state_partitions != plan.wanted:
        yield f"offsets/{batch} says {entry.state_partitions} partitions"
    ids = parse_commit(commit)[1]
    for operator in plan.operators:
        # Spark notes the new number for some operators only
        partitions = plan.partitions_of(operator.number)
        for folder in operator._replace(partitions=partitions).folders():
            chosen = None
            try:
                if ids is not None:
                    store = operator.stores.index(folder.store)
                    chosen = {batch + 1: ids[operator.number][folder.partition][store]}
                closure(tree.names_in(folder.path), batch + 1, tree.reader(folder.path), chosen)
            except (KeyError, IndexError):
                yield f"{folder.path}: commits/{batch} names no file for it"
            except FileNotFoundError as error:
                yield f"{folder.path}: {error} is not there"
            except DamageError as error:
                yield f"{folder.path}: {error.what}"


def _require_same_rows(before: Digests, after: Digests, url: str, undo: str) -> None:
    for (number, store), rows in before.items():
        if rows != after[number, store]:
            raise DamageError(
                f"operator {number}, store {store}: {rows.rows} rows were rewritten, and "
                f"{after[number, store].rows} are read back, or others",
                where=url,
                hint=f"Do not start the query. Go back: {undo}",
            )


def _failed(error: Exception, tree: Tree, plan: Repartition, undo: str) -> SeamarkError:
    said, url = said_by(error), tree.directory.url
    if plan.new_batch not in tree.batches("offsets"):
        return RefusedError(
            "Spark cannot change the partitions of this state; its logs are as they were",
            where=f"{url}: {said}",
        )
    return SeamarkError(
        f"the change to {plan.wanted} partitions was started and not finished",
        where=f"{url}: {said}",
        hint="Spark sees that and refuses to start the query "
        "(STREAMING_UNFINISHED_REPARTITION_DETECTED). Run the same command again to finish it, "
        f"or go back: {undo}",
    )
