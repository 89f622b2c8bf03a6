"""The page as people see it: in a real Chromium, at two widths, in light and dark.

Pictures of all pages are kept in ``.venv/screenshots``, or where SEAMARK_SCREENSHOTS says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import seamark
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink
from seamark.store import open_store
from seamark.ui.places import Place
from tests.cli.support.stores import flip, stored_manifest
from tests.integration.support.browsers import DESK, PATIENCE, PHONE, chromium, visit
from tests.native.support.inspected import make_hdfs
from tests.pipeline.support.workloads import clock, orders, put_file, write_input
from tests.support.skipped import or_skip
from tests.support.spark import local_spark
from tests.ui.support.serving import CountedBlobs, server_for
from tests.ui.support.stores import epoch_manifest, fill, hostile, save
from tests.ui.test_load import big_store

pytestmark = pytest.mark.integration
expect.set_options(timeout=PATIENCE)

LOOKS = [
    (DESK, "light"),
    (PHONE, "dark"),
    pytest.param(DESK, "dark", marks=pytest.mark.slow),
    pytest.param(PHONE, "light", marks=pytest.mark.slow),
]
PAGES = {
    "overview": "/",
    "history": "/p/orders",
    "checkpoint": "/p/orders/checkpoint/44",
    "damaged": "/p/orders/checkpoint/45",
    "diff": "/p/orders/diff?a=2&b=44",
    "rows": "/p/orders/rows?checkpoint=44",
    "restart": "/p/orders/restart",
    "native": "/p/native",
    "not answering": "/p/payments",
    "nothing": "/p/nothing",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with or_skip("Chromium", chromium()) as started:
        yield started


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with damage, a pin, a rollback and a new writer; a directory; one that is down."""
    root = tmp_path_factory.mktemp("stores")
    fill(root / "orders", 40)
    now = int(time.time() * 1000)
    with open_store(root / "orders") as store:
        store.claim(writer="driver-2 pid 4121", pipeline="trades")
        store.pin("before-upgrade", 12)
        store.supersede(25, 29)
        for number in range(41, 46):
            upgrade = {"from": 40, "rows": [["sink", "bars", "kept", "its target is the same"]]}
            extra = {"upgrade": upgrade} if number == 42 else {}
            save(store, number, newest=45, now_ms=now, extra=extra)
    flip(stored_manifest(root / "orders", 45), at=100)
    origin = {"url": str(root / "orders"), "checkpoint_id": 20, "timeline": "t", "epoch": 20}
    with open_store(root / "trial") as store:
        store.claim(writer="driver-3 pid 77", pipeline="trial")
        for number in (1, 2, 3):
            first: dict[str, Any] = {"structure": {"sources": {}}} if number == 1 else {}
            save(store, number, newest=3, now_ms=now, extra={"fork": origin, **first})
    make_hdfs(root / "native")
    down = CountedBlobs("s3://bucket/payments")
    down.is_down = True
    places: list[Path | Place] = [
        root / "orders",
        root / "trial",
        root / "native",
        down.place("payments"),
    ]
    with server_for(places) as server:
        yield server.url


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_every_page_can_be_used_by_everybody_at_any_width_and_in_any_light(
    browser: Browser, troubled: str, size: tuple[int, int], scheme: str
) -> None:
    with visit(browser, troubled, size=size, scheme=scheme) as tab:
        for name, path in PAGES.items():
            tab.open(path)
            if name == "history":
                expect(tab.page.locator("#drawn")).to_contain_text("checkpoints 1 to 45")
            if name == "restart":
                for kind in ("recover", "verify", "doctor"):
                    tab.page.click(f"#b-{kind}")
                    expect(tab.page.locator(f"#b-{kind}")).to_contain_text("again")
            tab.shoot(f"{name}-{size[0]}-{scheme}")
            assert tab.overflow() <= 0, name
            assert tab.barriers() == [], name
        # the browser says in its console that a page was not there, or is damaged
        tab.complaints = [text for text in tab.complaints if "status of" not in text]


def test_new_epochs_appear_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    fill(tmp_path / "store", 3)
    with (
        server_for([tmp_path / "store"]) as server,
        visit(browser, server.url) as tab,
        visit(browser, server.url) as other,
        open_store(tmp_path / "store") as writer,
    ):
        tab.open("/p/store")
        other.open("/")
        tab.page.evaluate("window.sameness = 1")
        writer.claim(writer="driver-2")
        for number in range(5, 8):
            save(writer, number, newest=number, now_ms=int(time.time() * 1000))
            expect(tab.page.locator("#tiles")).to_contain_text(f"epoch {number}")
            expect(tab.page.locator("#table tbody th").first).to_have_text(str(number))
            expect(tab.page.locator("#drawn")).to_contain_text(f"to {number}")
            expect(other.page.locator("#places")).to_contain_text(f"epoch {number}")
        assert tab.page.evaluate("window.sameness") == 1


def test_a_running_pipeline_is_seen_live_with_its_rows_and_its_state(
    browser: Browser, tmp_path: Path
) -> None:
    """The page of the driver itself, over a real store; nothing is reloaded while epochs come."""
    folder = write_input(tmp_path / "in", 2)
    go = threading.Event()

    def hold_up(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) == (Step.SAVE, "before", 4):
            assert go.wait(300)

    with local_spark(tmp_path / "warehouse") as spark:
        p = seamark.Pipeline(
            "shop", tmp_path / "store", ui=0, on_step=hold_up, output_mode="update"
        )
        rows = p.source("orders", orders(spark, folder))
        p.sink("counts", rows.groupBy("k").count(), FileSink(tmp_path / "out"))
        p.sink("all", rows, FileSink(tmp_path / "all"))
        run = p.start({"processingTime": "0 seconds"})
        assert run.page_url is not None
        try:
            with visit(browser, run.page_url) as tab:
                tab.open("/p/pipeline")
                expect(tab.page.locator("#drawn")).to_contain_text("checkpoints 1 to 3")
                tab.page.evaluate("window.sameness = 1")
                put_file(folder / "orders", 3, [{"id": 900, "k": 1, "v": 1, "t": clock(90)}])
                expect(tab.page.locator("#tiles")).to_contain_text("epoch 4save,")
                tab.shoot("running")
                go.set()
                expect(tab.page.locator("#drawn")).to_contain_text("checkpoints 1 to 4")
                expect(tab.page.locator("#table tbody th").first).to_have_text("4")
                expect(tab.page.locator("#sinks")).to_contain_text("counts")
                assert tab.page.evaluate("window.sameness") == 1
                tab.open("/p/pipeline/checkpoint/4")
                tab.shoot("pipeline-checkpoint")
                tab.page.click("text=Look at the rows of the state")
                tab.page.click("text=Read the rows")
                expect(tab.page.locator("#rows caption")).to_contain_text("the last ones")
                expect(tab.page.locator("#rows thead")).to_contain_text("key.k")
                tab.shoot("pipeline-rows")
                assert tab.barriers() == []
        finally:
            go.set()
            run.stop()


def test_the_picture_appears_with_the_first_checkpoint(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with server_for([tmp_path / "store"]) as server, visit(browser, server.url) as tab:
        tab.open("/p/store")
        expect(tab.page.locator("#none-yet")).to_be_visible()
        fill(tmp_path / "store", 3)
        expect(tab.page.locator("#drawn")).to_contain_text("checkpoints 1 to 3")


def test_a_store_that_stops_answering_is_shown_as_such_and_comes_back(browser: Browser) -> None:
    blobs = CountedBlobs()
    with blobs.store() as store:
        store.save(epoch_manifest(1, newest=1, now_ms=int(time.time() * 1000)))
    with server_for([blobs.place()]) as server, visit(browser, server.url) as tab:
        tab.open("/p/trades")
        expect(tab.page.locator("#tiles")).to_contain_text("epoch 1")
        blobs.is_down = True
        expect(tab.page.locator("#head")).to_contain_text("not answering")
        expect(tab.page.locator("#tiles")).to_contain_text("epoch 1")
        tab.shoot("outage")
        blobs.is_down = False
        expect(tab.page.locator("#head")).not_to_contain_text("not answering")


def test_a_server_that_is_gone_is_told_and_found_again(browser: Browser, tmp_path: Path) -> None:
    fill(tmp_path / "store", 2)
    with server_for([tmp_path / "store"]) as server, visit(browser, server.url) as tab:
        tab.open("/p/store")
        server.stop()
        expect(tab.page.locator("#connection")).to_have_text("connection lost, trying again")
        tab.complaints.clear()  # that it cannot connect, which is right
        with server_for([tmp_path / "store"], port=server.port):
            expect(tab.page.locator("#connection")).to_have_text("live")
        tab.complaints.clear()


def test_nothing_in_a_hostile_store_runs(browser: Browser, tmp_path: Path) -> None:
    hostile(tmp_path / "store")
    paths = ["/", "/p/store", "/p/store/diff?a=1&b=2", "/p/store/restart"]
    paths += [f"/p/store/checkpoint/{number}" for number in (1, 2)]
    with server_for([tmp_path / "store"]) as server, visit(browser, server.url) as tab:
        for path in paths:
            tab.open(path)
            if path == "/p/store":
                tab.page.locator("#chart").focus()
                for _ in range(3):
                    tab.page.keyboard.press("ArrowLeft")
                expect(tab.page.locator("#readout")).to_contain_text("<script>")
                shown = tab.page.locator("#history").inner_text()
                assert not {"\u202e", "\x1b"} & {*shown}
            if path.endswith("restart"):
                tab.page.click("#b-doctor")
                expect(tab.page.locator("#b-doctor")).to_contain_text("again")
            markup = "document.querySelectorAll('img[onerror], iframe, b').length"
            assert tab.page.evaluate(markup) == 0
            sources = tab.page.evaluate("[...document.scripts].map((s) => s.getAttribute('src'))")
            assert all(source.startswith("/static/") for source in sources)
            tab.shoot(f"hostile-{paths.index(path)}")


def test_ten_thousand_checkpoints_are_drawn_from_few_of_them(browser: Browser) -> None:
    blobs = big_store(10_000)
    with server_for([blobs.place()], every=3.0) as server, visit(browser, server.url) as tab:
        tab.open("/p/trades")
        drawn = tab.page.locator("#drawn")
        expect(drawn).to_contain_text("to 10000")
        tab.page.click("[data-zoom=all]")
        expect(drawn).to_contain_text("of 10000 checkpoints drawn, 1 to 10000")
        tab.shoot("ten-thousand")
        for _ in range(6):
            before = drawn.text_content()
            tab.page.click("[data-zoom=in]")
            expect(drawn).not_to_have_text(before or "")
        expect(drawn).not_to_contain_text("1 to 10000")
        assert blobs.asked["manifests"] < 3000


def test_the_picture_is_used_with_the_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    fill(tmp_path / "store", 30)
    with server_for([tmp_path / "store"]) as server, visit(browser, server.url) as tab:
        tab.open("/p/store")
        expect(tab.page.locator("#drawn")).to_contain_text("checkpoints 1 to 30")
        chart = tab.page.locator("#chart")
        for _ in range(40):
            tab.page.keyboard.press("Tab")
            if chart.evaluate("(chart) => chart === document.activeElement"):
                break
        expect(chart).to_be_focused()
        tab.page.keyboard.press("Home")
        tab.page.keyboard.press("ArrowRight")
        assert "checkpoint 2, epoch 2, status valid" in str(chart.get_attribute("aria-valuetext"))
        tab.page.keyboard.press("+")
        expect(tab.page.locator("#drawn")).not_to_contain_text("1 to 30")
        tab.page.keyboard.press("-")
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator("h2").first).to_contain_text("Checkpoint 2 · epoch 2")


def test_a_part_of_the_picture_is_chosen_by_dragging_and_a_click_opens_a_checkpoint(
    browser: Browser, tmp_path: Path
) -> None:
    fill(tmp_path / "store", 100)
    with server_for([tmp_path / "store"]) as server, visit(browser, server.url) as tab:
        tab.open("/p/store")
        expect(tab.page.locator("#drawn")).to_contain_text("checkpoints 1 to 100")
        box = tab.page.locator("#chart").bounding_box()
        assert box is not None
        tab.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80)
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80, steps=5)
        tab.page.mouse.up()
        expect(tab.page.locator("#drawn")).not_to_contain_text("1 to 100")
        tab.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + 80)
        tab.page.wait_for_url("**/checkpoint/*")


def test_a_command_is_copied_with_one_click(browser: Browser, troubled: str) -> None:
    with visit(browser, troubled) as tab:
        tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab.open("/p/orders/checkpoint/12")
        tab.page.click("button[data-copy*=rollback]")
        expect(tab.page.locator("button[data-copy*=rollback]")).to_contain_text("Copied")
        copied = tab.page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("seamark rollback ")
        assert copied.endswith("/orders 12")


def test_the_page_is_read_without_scripts_too(browser: Browser, tmp_path: Path) -> None:
    fill(tmp_path / "orders", 45)
    with server_for([tmp_path / "orders"]) as server:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(f"{server.url}p/orders")
        expect(page.locator("#table tbody tr")).to_have_count(45)
        page.goto(f"{server.url}p/orders/restart")
        page.click("#b-verify")
        page.wait_for_url("**/restart")
        for _ in range(600):
            page.goto(f"{server.url}p/orders/restart")
            if "Done" in page.content():
                break
            time.sleep(0.1)
        assert "Done" in page.content()
        context.close()
