"""``seamark sources``: how far each source has been read, also while a pipeline runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

import click

from seamark import limits
from seamark._common.files import require_no_link
from seamark._common.os_errors import translate_os_errors
from seamark._common.retry import TRIES
from seamark._common.text import elapsed_text, grouped, shortened, size_text
from seamark._redaction import redacted
from seamark.blobs.addresses import OBJECT_STORES
from seamark.cli.commands import PLACE, Command, duration, settings
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.shown_positions import LEFT_OUT, ShownPositions
from seamark.cli.source_check import check_document, checked_sources, show_check
from seamark.cli.standard_streams import hide_values
from seamark.cli.store_argument import opened_store
from seamark.cli.table_check import TableCheck, options_by_source
from seamark.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    SeamarkError,
    SourceSilentError,
)
from seamark.manifest import CheckpointManifest
from seamark.pipeline.telemetry.progress_record import positions_in
from seamark.progress.rocksdb.first_look import require_readable
from seamark.progress.session import kept_position
from seamark.progress.store import SourceCheckpointStore
from seamark.progress.urls import open_progress, rocksdb_path, rocksdb_url
from seamark.reports.checkpoint_summary import positions
from seamark.reports.named_checkpoints import load_named
from seamark.reports.places import local_path, require_path
from seamark.spark.kafka.client import look_at, read_settings
from seamark.spark.kafka.lag import recorded_ages, recorded_lag
from seamark.spark.kafka.positions import Offsets, Topics
from seamark.store import CheckpointStore

_IN_STORE: Final = "progress"
_DEEPEST: Final = 4


@click.command("sources", cls=Command)
@click.argument("url", type=PLACE)
@click.option("--namespace", help="Namespace of a Redis store, unless the URL has it.")
@click.option("--check", is_flag=True, help="Ask whether what comes next is still there.")
@click.option(
    "--kafka-config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Settings of the client, name=value a line; bootstrap.servers must be among them.",
)
@click.option(
    "--source-config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Options of tables, SOURCE.OPTION=value a line, such as orders.catalog.uri=….",
)
@click.option("--timeout", type=duration, default="15s", help="How long Kafka may take.")
def command(
    url: str,
    namespace: str | None,
    check: bool,
    kafka_config: str | None,
    source_config: str | None,
    timeout: float,
) -> None:
    """Show how far the sources of a pipeline have been read.

    URL is a progress store (redis://host/0?namespace=NAME, rocksdb:///path) or a store of
    checkpoints. For a store of checkpoints, the progress store inside it is shown or, if there is
    none, the positions of the newest valid checkpoint. Nothing is written, so a pipeline may be
    running.

    With --check the positions of the newest valid checkpoint are compared with what Kafka has: the
    rows that are left, the lag, the age of the next row, and the time until retention deletes it.
    Without --kafka-config the servers are those that the checkpoint names. Of DeltaSource and
    IcebergSource the table is asked: whether it is still the same one, and has the version or
    snapshot that comes next. The exit code is 6 when rows that come next are gone.
    """
    if not check and (kafka_config is not None or source_config is not None):
        raise click.UsageError("--kafka-config and --source-config are for --check")
    if check:
        _check(url, kafka_config, source_config, timeout)
        return
    progress = _progress_url(url)
    if progress is None:
        with opened_store(url) as store:
            document = _of_checkpoint(store)
    else:
        with open_progress(progress, namespace=namespace, read_only=True) as progress_store:
            document = _of_progress(progress_store)
        if local_path(url) is not None and _has_checkpoints(url):
            _add_lag(document, url)
    print_answer(document, _show)


def _check(url: str, kafka_config: str | None, source_config: str | None, seconds: float) -> None:
    given = None if kafka_config is None else _client_settings(kafka_config)
    with opened_store(url) as store:
        for _ in range(TRIES):
            manifest = load_named(store, "latest")
            document = _checked(manifest, store.url, given, source_config, seconds)
            # a running pipeline may have read by now what was removed since
            if not document["lost"] or _newest(store) == manifest.checkpoint_id:
                break
    print_answer(document, show_check)


def _newest(store: CheckpointStore) -> int:
    return load_named(store, "latest").checkpoint_id


def _checked(
    manifest: CheckpointManifest,
    address: str,
    given: dict[str, str] | None,
    source_config: str | None,
    seconds: float,
) -> Document:
    servers = manifest.source_servers or {}
    silent: dict[str, SourceSilentError] = {}

    def look(source: str, offsets: Offsets) -> Topics:
        # a login is never sent to servers that only the store has named
        chosen = {"bootstrap.servers": servers.get(source, "")} if given is None else given
        if not chosen["bootstrap.servers"]:
            raise InvalidInputError(
                f"the checkpoint does not say where source {source!r} is read from",
                hint="Give --kafka-config with bootstrap.servers.",
            )
        asked = chosen["bootstrap.servers"]
        # each that is waited for takes all of the time that Kafka may take
        if known := silent.get(asked):
            raise known
        if len(silent) >= limits.MOST_SILENT_SERVERS:
            raise SourceSilentError(
                f"{len(silent)} other servers of this checkpoint do not answer: no more are asked",
                where=f"bootstrap.servers={shortened(redacted(asked), limits.LONGEST_PREFIX)}",
            )
        try:
            return look_at(chosen, offsets, seconds)
        except SourceSilentError as error:
            silent[asked] = error.as_value()
            raise

    options = {} if source_config is None else _source_options(source_config, manifest)
    checked = checked_sources(manifest, look, TableCheck(manifest, options))
    return check_document(manifest, address, checked)


def _source_options(path: str, manifest: CheckpointManifest) -> dict[str, dict[str, str]]:
    with translate_os_errors("reading", path), open(path, encoding="utf-8") as file:
        given = read_settings(file.read())
    hide_values({**settings().storage_options, **given})
    return options_by_source(given, sorted(manifest.source_offsets))


def _client_settings(path: str) -> dict[str, str]:
    with translate_os_errors("reading", path), open(path, encoding="utf-8") as file:
        given = read_settings(file.read())
    if not given.get("bootstrap.servers"):
        raise InvalidInputError(
            "the client's settings name no bootstrap.servers",
            where=path,
            hint="A login is not sent to the servers that a store names.",
        )
    hide_values({**settings().storage_options, **given})
    return given


def _progress_url(url: str) -> str | None:
    """The URL of the progress store that is meant; None for a store that has checkpoints alone."""
    if urlsplit(url).scheme.lower() in OBJECT_STORES:
        return None
    path = local_path(url)
    if path is not None:
        require_path(path, "progress store")
        inside = f"{path}/{_IN_STORE}"
        with translate_os_errors("looking at", inside):
            require_no_link(inside)  # whoever made the store may have put it there
        if not _is_rocksdb(inside) and not _is_rocksdb(path) and _has_checkpoints(url):
            return None
        url = rocksdb_url(inside if _is_rocksdb(inside) else path)
    if url.lower().startswith("rocksdb:"):
        folder = rocksdb_path(url)
        if folder.startswith("/"):
            require_path(folder, "progress store")
            _require_rocksdb(folder)
            require_readable(folder)
    return url


def _has_checkpoints(url: str) -> bool:
    return any(os.path.exists(f"{local_path(url)}/{n}") for n in ("owner.json", "checkpoints"))


def _of_checkpoint(store: CheckpointStore) -> Document:
    """Where the newest whole checkpoint stands."""
    manifest = load_named(store, "latest")
    lags = _lags(manifest)
    sources = [
        _source(name, manifest.epoch, "json", offsets, None) | lags.get(name, {})
        for name, offsets in sorted(positions(manifest.source_offsets).items())
    ]
    return _document(store.url, manifest.checkpoint_id, manifest.pipeline_hash, sources)


def _lags(manifest: CheckpointManifest) -> dict[str, Document]:
    """What a checkpoint says about the rows that come after its epoch, by source."""
    ages = recorded_ages(manifest)
    return {
        name: {"lag": lag, "age_seconds": ages.get(name)}
        for name, lag in recorded_lag(manifest).items()
    }


def _add_lag(document: Document, url: str) -> None:
    """Add what the newest checkpoint says, to the sources that are recorded where it stands.

    The epoch alone does not tell that: after a rollback another history has the same numbers.
    """
    try:
        with opened_store(url) as store:
            manifest = load_named(store, "latest")
    except SeamarkError:
        return  # the record is shown as it is; 'seamark verify' tells what is wrong with the store
    lags = _lags(manifest)
    kept = {name: kept_position(position) for name, position in positions_in(manifest).items()}
    shown = ShownPositions()
    stands = {name: (manifest.epoch, *shown(position)) for name, position in kept.items()}
    for source in document["sources"]:
        at = source["sequence"], source["position_encoding"], source["position"]
        if at[1] != LEFT_OUT and at == stands.get(source["name"]):
            source.update(lags.get(source["name"], {}))


def _is_rocksdb(folder: str) -> bool:
    return os.path.isfile(f"{folder}/CURRENT")


def _require_rocksdb(folder: str) -> None:
    with translate_os_errors("listing", folder):
        os.listdir(folder)  # one that may not be read is not one without a store
    if not _is_rocksdb(folder):
        raise CheckpointNotFoundError(
            "there is no progress store in this folder",
            where=folder,
            hint="A pipeline on a local store keeps one inside the store as soon as it runs; on a "
            "remote store it is where its option progress= says.",
        )


def _of_progress(store: SourceCheckpointStore) -> Document:
    recorded, shown = store.read_overview(), ShownPositions()
    sources = [
        _source(name, at.sequence, *shown(at.source_position), len(at.source_position or b""))
        for name, at in sorted(recorded.checkpoints.items())
    ]
    return _document(store.url, None, recorded.config_hash, sources)


def _document(
    url: str, checkpoint_id: int | None, config_hash: int | None, sources: list[Document]
) -> Document:
    return {
        "store": url,
        "checkpoint": checkpoint_id,
        # as text: few programs that read JSON keep all 64 bits of a number
        "config_hash": None if config_hash is None else f"{config_hash:016x}",
        "sources": sources,
    }


def _source(
    name: str, sequence: int, encoding: str | None, position: Any, size: int | None
) -> Document:
    return {
        "name": name,
        "sequence": sequence,
        "position": position,
        "position_encoding": encoding,
        "position_bytes": size,
        "lag": None,
        "age_seconds": None,
    }


def _show(document: Document) -> None:
    rows = document["sources"]
    if not rows:
        print_paragraph(f"No source is recorded in {document['store']}.")
    else:
        headings = ["SOURCE", "SEQUENCE", "PARTITION", "POSITION"]
        knows_lag = any(row["lag"] is not None for row in rows)
        # a small store may hold millions of positions
        lines = (cells for row in rows for cells in _cells(row))
        print_rows(
            [*headings, "LAG", "AGE"] if knows_lag else headings,
            [
                cells if knows_lag else cells[: len(headings)]
                for cells in islice(lines, limits.MOST_POSITIONS)
            ],
            right="SEQUENCE LAG AGE",
        )
        if next(lines, None) is not None:
            print_paragraph(f"Only the first {limits.MOST_POSITIONS} positions: --json has all.")
    print_paragraph(f"configuration hash {document['config_hash'] or 'not written'}")
    if rows and document["checkpoint"] is not None:
        print_hint(f"As checkpoint {document['checkpoint']} has it; its epoch is the sequence.")
    elif rows:
        print_hint("A pipeline records its epoch as the sequence.")


def _cells(row: Document) -> Iterator[tuple[str, ...]]:
    """One line for each partition; what is the same as above is left out."""
    first = (str(row["name"]), str(row["sequence"]))
    lags, ages = row["lag"] or {}, row["age_seconds"] or {}
    for number, (part, whole) in enumerate(_parts(row)):
        text = shortened(whole, limits.LONGEST_REASON)
        lag = grouped(lags[part]) if part in lags else "–"
        age = elapsed_text(ages[part]) if part in ages else "–"
        yield (*(first if number == 0 else ("", "")), part, text, lag, age)


def _parts(row: Document) -> list[tuple[str, str]]:
    position, encoding = row["position"], row["position_encoding"]
    if encoding is None or position == {}:
        return [("–", "–" if encoding is None else "at its beginning")]
    if encoding == LEFT_OUT:
        return [("–", f"{size_text(row['position_bytes'])}, left out")]
    if encoding == "json":
        return list(_flat(position))
    return [("–", str(position) if encoding == "text" else f"hex {position}")]


def _flat(position: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """``{"trades": {"0": 600}}`` as ``trades-0`` with ``600``; values that are no objects whole."""
    is_near = name.count("\0") < _DEEPEST and len(name) <= limits.LONGEST_PREFIX
    if isinstance(position, dict) and position and is_near:
        for key, value in position.items():
            yield from _flat(value, f"{name}\0{key}" if name else str(key))
        return
    text = position if isinstance(position, str) else json.dumps(position, ensure_ascii=False)
    yield name.replace("\0", "-") or "–", text
