"""Who may see the page, and what it never does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from seamark.errors import InvalidInputError
from seamark.ui import bounds
from seamark.ui.guard import COOKIE, Access, Guard
from tests.ui.support.serving import Client, CountedBlobs, server_for, serving

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def page() -> Iterator[Client]:
    with serving(CountedBlobs().place(), names=["pages.example"]) as client:
        yield client


@pytest.fixture(scope="module")
def closed() -> Iterator[Client]:
    with serving(CountedBlobs().place(), token=TOKEN) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("[::1]:8765", 200),
        ("127.9.9.9", 200),
        ("pages.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("192.168.0.7", 421),
        ("localhost:80@evil.example", 421),
        ("", 421),
        ("local host", 421),
    ],
)
def test_only_a_host_header_that_names_this_server_is_answered(
    page: Client, host: str, status: int
) -> None:
    """Against DNS rebinding: a page of another site cannot read this one under its own name."""
    assert page("/", headers={"Host": host}).status == status


def test_a_server_for_other_machines_may_be_named_by_any_address_but_not_by_any_name() -> None:
    access = Access.at("0.0.0.0", token=TOKEN, names=["pages.example"])
    assert access.knows("192.168.0.7:8765")
    assert access.knows("pages.example")
    assert not access.knows("evil.example")
    assert Access.at("build-7.internal", token=TOKEN).knows("build-7.internal:8765")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"])
def test_no_other_method_is_answered(page: Client, method: str) -> None:
    answer = page("/", method)
    assert answer.status in (400, 405)


def test_a_page_is_not_posted_to_and_has_a_head(page: Client) -> None:
    assert page.post("/").status == 405
    head = page("/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 500


@pytest.mark.parametrize("path", ["/", "/p/trades", "/api/places", "/static/page.js", "/nothing"])
def test_every_answer_forbids_what_the_page_does_not_need(page: Client, path: str) -> None:
    headers = page(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    assert headers["cache-control"] in ("no-store", "no-cache")


def test_without_the_token_nothing_is_shown(closed: Client) -> None:
    for path in ("/", "/p/trades", "/api/places", "/events", "/static/page.js", "/nothing"):
        answer = closed(path)
        assert answer.status == 401
        assert TOKEN not in answer.text
        assert "trades" not in answer.text
    assert closed.post("/api/p/trades/checks/verify").status == 401


def test_the_token_is_shown_once_and_then_carried_as_a_cookie(closed: Client) -> None:
    answer = closed(f"/p/trades?before=5&token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/p/trades?before=5")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    value = cookie.partition(";")[0]
    assert closed("/", headers={"Cookie": f"other=1; {value}"}).status == 200
    assert closed("/", headers={"Cookie": f"{value}x"}).status == 401
    assert closed("/", headers={"Cookie": "seamark_ui="}).status == 401
    assert closed("/", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
    assert closed("/", headers={"Authorization": "Bearer wrong-horse-battery"}).status == 401
    assert closed("/?token=wrong-horse-battery").status == 401
    assert closed("/", headers={"Cookie": f"seamark_ui={TOKEN}"}).status == 401


@pytest.mark.parametrize("size", [bounds.MOST_REQUEST_BYTES, 50_000])
@pytest.mark.parametrize("what", [b"x-long", b"cookie"])
def test_a_request_that_is_too_long_is_refused_however_few_pieces_it_comes_in(
    size: int, what: bytes
) -> None:
    """The server below counts only what it has to wait for."""
    assert _status_of([(what, b"a" * size)]) == 431
    assert _status_of([(what, b"a" * (bounds.MOST_REQUEST_BYTES // 2))]) == 401
    assert _status_of([(b"x", b"")] * size) == 431


def test_of_what_others_send_as_cookies_nothing_is_unquoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes the square of the length, and holds up all other viewers."""
    monkeypatch.setattr("http.cookies._unquote", lambda text: pytest.fail("it is unquoted"))
    ours = f"{COOKIE}={Access.at('127.0.0.1', token=TOKEN).cookie()}"
    odd = 'a="' + "\\" * 5000 + '"'
    assert _status_of([(b"cookie", odd.encode())]) == 401
    assert _status_of([(b"cookie", f"{odd}; {ours}".encode())]) == 204


def _status_of(headers: list[tuple[bytes, bytes]]) -> int:
    """What a request with these headers is answered; 204 when it is let through."""
    statuses: list[int] = []

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=204)(scope, receive, send)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
    guard = Guard(page, Access.at("127.0.0.1", token=TOKEN), {"GET"})
    asyncio.run(guard({**scope, "headers": [(b"host", b"localhost"), *headers]}, receive, send))
    return statuses[0]


def test_the_way_back_from_the_token_never_leads_to_another_host(closed: Client) -> None:
    for path in ("//evil.example/", "///evil.example", "/\\evil.example"):
        where = closed(f"{path}?token={TOKEN}").headers["location"]
        assert not where.startswith(("//", "/\\"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "build-7.internal"])
def test_a_page_that_others_can_reach_wants_a_token(host: str) -> None:
    with pytest.raises(InvalidInputError, match="wants a token") as refused:
        server_for([CountedBlobs().place()], host=host)
    assert "--token" in str(refused.value.hint)
    with pytest.raises(InvalidInputError, match="guessed"):
        server_for([CountedBlobs().place()], host=host, token="short")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
    ],
)
def test_another_site_cannot_have_a_store_read(page: Client, headers: dict[str, str]) -> None:
    answer = page("/api/p/trades/checks/verify-data", "POST", headers)
    assert answer.status == 403
    assert page.json("/api/p/trades/checks/verify-data")["state"] == "none"


def test_a_form_of_the_page_itself_is_obeyed_also_without_scripts(page: Client) -> None:
    """Under our referrer policy a browser names no origin for it."""
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
    assert page("/p/trades/restart/doctor", "POST", headers).status == 303
