"""Who may ask what: checked before any page is made, for every request alike.

- The ``Host`` header must name this server. A page of another site that has its own name point at
  loopback (DNS rebinding) sends its own name there.
- With a token, a request must carry it: in the address of the first visit, then in a cookie; or as
  a bearer token.
- Nothing is changed by any request. What costs something is started by POST, and a POST that a
  browser sends for another site is refused, so that no other page can have a store read.

Tests: ``tests/ui/test_guard.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seamark.ui.bounds import MOST_REQUEST_BYTES

COOKIE: Final = "seamark_ui"
TOKEN: Final = "token"
_NAME: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::\d{1,5})?"
)
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_RAW_HEADERS: Final = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]


@dataclass(frozen=True)
class Access:
    """Who may see the page."""

    names: frozenset[str] = _LOOPBACK_NAMES
    """Names by which this server is known, in lower case."""
    any_address: bool = False
    """Whether it may be named by any address, and not only by one of loopback."""
    token: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, host: str, *, token: str | None = None, names: Iterable[str] = ()) -> Access:
        """For a server that listens at ``host`` and is also known by ``names``."""
        known = {name.lower().rstrip(".") for name in names} | _LOOPBACK_NAMES
        if is_loopback(host):
            return cls(frozenset(known), token=token)
        if _address(host) is None:
            known.add(host.lower().rstrip("."))
        return cls(frozenset(known), any_address=True, token=token)

    def knows(self, host_header: str) -> bool:
        """Whether a ``Host`` header names this server."""
        match = _NAME.fullmatch(host_header)
        if match is None:
            return False
        name = (match["v6"] or match["name"]).lower().rstrip(".")
        address = _address(name)
        if address is not None:  # a rebinding page has a name, never an address
            return self.any_address or address.is_loopback
        return name in self.names

    def cookie(self) -> str:
        """What a browser carries that has shown the token; it does not give the token away."""
        return hmac.new((self.token or "").encode(), b"seamark ui", hashlib.sha256).hexdigest()

    def accepts(self, token: str) -> bool:
        """Whether this is the token."""
        return self.token is not None and hmac.compare_digest(
            hashlib.sha256(token.encode()).digest(), hashlib.sha256(self.token.encode()).digest()
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    address = _address(host)
    return address.is_loopback if address is not None else host.lower() in _LOOPBACK_NAMES


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class Guard:
    """Lets through to an application what may be asked."""

    def __init__(self, app: ASGIApp, access: Access, methods: Collection[str]) -> None:
        self._app, self._access, self._methods = app, access, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        await (self._refusal(scope) or self._app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        if _head_size(scope) > MOST_REQUEST_BYTES:
            return _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long.")
        headers = Headers(scope=scope)
        host = headers.getlist("host")
        if len(host) != 1 or not self._access.knows(host[0]):
            return _plain(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This server is not known by that name. Start it with --name NAME to allow one.",
            )
        if scope["method"] not in self._methods:
            refusal = _plain(HTTPStatus.METHOD_NOT_ALLOWED, "The page only reads.")
            refusal.headers["allow"] = ", ".join(sorted(self._methods))
            return refusal
        if scope["method"] == "POST" and not _is_own(headers, host[0]):
            return _plain(HTTPStatus.FORBIDDEN, "Another site has asked for this.")
        return self._unauthorized(scope, headers)

    def _unauthorized(self, scope: Scope, headers: Headers) -> Response | None:
        access = self._access
        if access.token is None:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == TOKEN]
        if given:
            if scope["method"] == "GET" and access.accepts(given[-1]):
                return _without_token(scope["path"], query, access.cookie())
            return _plain(HTTPStatus.UNAUTHORIZED, "That is not the token of this page.")
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and access.accepts(bearer.strip()):
            return None
        carried = _our_cookie(headers.get("cookie", ""))
        if hmac.compare_digest(carried.encode(), access.cookie().encode()):
            return None
        return _plain(
            HTTPStatus.UNAUTHORIZED,
            "This page wants a token. Open the address that 'seamark ui' has printed, or send the "
            "token as 'Authorization: Bearer …'.",
        )


def _head_size(scope: Scope) -> int:
    """The bytes before a body. What comes in one piece is whole before the server counts it."""
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    return headers + len(scope["path"]) + len(scope["query_string"])


def _our_cookie(header: str) -> str:
    """The value of our cookie. To undo quotes, as libraries do in all of them, takes the square of
    their length, and anybody may send one.
    """
    pairs = (part.partition("=") for part in header.split(";"))
    found = [value.strip() for name, _, value in pairs if name.strip() == COOKIE]
    return found[-1] if found else ""


def _is_own(headers: Headers, host: str) -> bool:
    """Whether a POST comes from our own page, or from no browser at all."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin == "null":  # what a form sends under our referrer policy; others may send it too
        return site is not None
    return origin is None or origin.partition("://")[2] == host


def _without_token(path: str, query: list[tuple[str, str]], cookie: str) -> Response:
    rest = urlencode([(name, value) for name, value in query if name != TOKEN])
    # more than one slash would lead to another host
    where = "/" + path.lstrip("/") + (f"?{rest}" if rest else "")
    response = RedirectResponse(where, HTTPStatus.SEE_OTHER)
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="lax", path="/")
    return response


def _plain(status: HTTPStatus, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status)


def _with_headers(send: Send) -> Send:
    """Send with our headers."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message.get("headers", ())}
            more = [pair for pair in _RAW_HEADERS if pair[0] not in names]
            if b"cache-control" not in names:
                more.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return with_headers
