"""The page of a running pipeline."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark.errors import InvalidInputError
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.run_page import RunningStep, address_of, open_run_page
from seamark.sinks import FileSink
from seamark.store import open_store
from tests.pipeline.support.workloads import orders, write_input
from tests.ui.support.serving import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.warm
def test_a_run_shows_its_store_and_the_step_that_it_is_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_input(tmp_path / "in", 2)
    go, reached = threading.Event(), threading.Event()
    steps: list[str] = []

    def hold_up(step: Step, when: str, epoch: int) -> None:
        steps.append(f"{when} {step.value} {epoch}")
        if (step, when, epoch) == (Step.SAVE, "before", 2):
            reached.set()
            go.wait(300)

    p = seamark.Pipeline("shop", tmp_path / "store", ui=0, on_step=hold_up)
    source = p.source("orders", orders(spark, tmp_path / "in"))
    p.sink("all", source, FileSink(tmp_path / "out"))
    run = p.start({"availableNow": True})
    try:
        assert run.page_url is not None
        page = Client(run.page_url)
        assert reached.wait(300)
        row = page.until("/api/places", lambda d: d["places"][0].get("newest"))["places"][0]
        assert row["name"] == "shop"
        assert row["running"]["epoch"] == 2
        assert row["running"]["step"] == "save"
        assert "epoch 2" in page.text("/p/pipeline")
        assert row["writer"]["alive"] is True
    finally:
        go.set()
    assert run.await_termination(300)
    assert "after retain 2" in steps  # the user's own function is called as before
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset
        page("/")


def test_between_two_epochs_it_says_that_it_waits() -> None:
    running = RunningStep()
    assert running.document()["step"] == "waiting for rows"
    running.note(Step.WRITE, "before", 7)
    assert (running.document()["epoch"], running.document()["step"]) == (7, "write")
    running.note(Step.RETAIN, "after", 7)
    assert running.document()["epoch"] is None


def test_a_port_that_is_taken_is_no_reason_not_to_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, open_store(tmp_path) as store:
        assert open_run_page(taken.getsockname()[1], "shop", store).url is None
    assert "there is no page" in caplog.text


@pytest.mark.parametrize("option", [True, -1, 70_000, "9100", "host:", "::1:80"])
def test_what_is_no_address_is_refused(option: Any) -> None:
    with pytest.raises(InvalidInputError):
        address_of(option)


def test_others_are_let_in_with_a_token_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEAMARK_UI_TOKEN", raising=False)
    with open_store(tmp_path) as store, pytest.raises(InvalidInputError, match="token"):
        open_run_page("0.0.0.0:0", "shop", store)


def test_no_page_is_served_unless_it_is_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert open_run_page(None, "shop", store).url is None
