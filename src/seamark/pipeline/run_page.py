"""The page of a running pipeline: its store as ``seamark ui`` shows it, and what runs right now.

Tests: ``tests/pipeline/test_run_page.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from seamark._common.logs import logger_named
from seamark.errors import InvalidInputError, SeamarkError
from seamark.pipeline.declaration.settings import PipelineSettings, Step
from seamark.pipeline.telemetry.metrics_endpoint import split_address
from seamark.reports.document import Document
from seamark.spark.session import is_local
from seamark.store import CheckpointStore
from seamark.store.inspection import reading_handle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seamark.ui.row_source import RowReader
    from seamark.ui.server import PageServer

log = logger_named("seamark.pipeline")

_LOOPBACK = "127.0.0.1"
_TOKEN = "SEAMARK_UI_TOKEN"


class RunPage:
    """A page that is served for as long as a run lasts; without a server there is none."""

    def __init__(self, running: RunningStep, server: PageServer | None = None) -> None:
        self._running, self._server = running, server

    @property
    def url(self) -> str | None:
        """Where it is."""
        return self._server.url if self._server is not None else None

    def followed(self, settings: PipelineSettings) -> PipelineSettings:
        """Settings with which the steps of a run are seen on the page."""
        if self._server is None:
            return settings
        on_step = settings.on_step

        def noted(step: Step, when: Literal["before", "after"], epoch: int) -> None:
            self._running.note(step, when, epoch)
            if on_step is not None:
                on_step(step, when, epoch)

        return replace(settings, on_step=noted)

    def close(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.stop()


class RunningStep:
    """The step that an epoch is at; written by the query's thread, read by the page's."""

    def __init__(self) -> None:
        self._at: tuple[int, str, float] | None = None

    def note(self, step: Step, when: str, epoch: int) -> None:
        """An epoch has begun or ended a step."""
        is_over = when == "after" and step is Step.RETAIN
        self._at = None if is_over else (epoch, step.value, time.time())

    def document(self) -> Document:
        """What the page shows of it."""
        if (at := self._at) is None:
            return {"epoch": None, "step": "waiting for rows", "since_ms": None}
        return {"epoch": at[0], "step": at[1], "since_ms": int(at[2] * 1000)}


def open_run_page(
    option: int | str | None,
    name: str,
    store: CheckpointStore,
    spark: SparkSession | None = None,
) -> RunPage:
    """Serve the page of a run, unless nobody wants one or its port is taken.

    Rows of state are read in ``spark``, where its executors are on this machine.
    A taken port is a warning: a page is no reason for a pipeline not to run.
    :class:`InvalidInputError` for an address that makes no sense or that wants a token.
    """
    running = RunningStep()
    if option is None or option is False:
        return RunPage(running)
    host, port = address_of(option)
    if any(find_spec(package) is None for package in ("starlette", "uvicorn", "jinja2")):
        raise SeamarkError("ui= needs an extra", hint="pip install 'seamark[ui]' brings it.")
    from seamark.ui.places import Place
    from seamark.ui.server import PageServer, check_access
    from seamark.ui.store_watch import StoreWatch

    token = os.environ.get(_TOKEN) or None
    check_access(host, token)
    watch = StoreWatch(lambda: reading_handle(store), store.url, is_shared=True)
    reader = _row_reader(store, spark)
    place = Place(
        "pipeline", name, store.url, lambda: watch, running=running.document, row_reader=reader
    )
    try:
        server = PageServer([place], host=host, port=port, token=token)
    except InvalidInputError as error:
        log.warning("there is no page: %s", error.what)
        return RunPage(running)
    server.start()
    log.info("the page of %s is at %s", name, server.url)
    return RunPage(running, server)


def _row_reader(
    store: CheckpointStore, spark: SparkSession | None
) -> Callable[[object], RowReader] | None:
    """None where no Spark can see a checkpoint that is restored on this machine."""
    if spark is None or not is_local(spark):
        return None
    from seamark.ui.row_source import RowSource

    return lambda _: RowSource(lambda: spark, store=lambda: nullcontext(reading_handle(store)))


def address_of(option: int | str) -> tuple[str, int]:
    """Host and port; a number is a port of this machine. :class:`InvalidInputError` otherwise."""
    if isinstance(option, str):
        return split_address(option, "a page is")
    if isinstance(option, bool) or not 0 <= option <= 65535:
        raise InvalidInputError(f"ui is a port or 'host:port', not {option!r}")
    return _LOOPBACK, option
