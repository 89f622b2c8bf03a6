"""Documents as pages or JSON, errors too: made in threads, so that none holds up another answer.

Tests: ``tests/ui/test_pages.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from seamark._common.logs import logger_named
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.reports.document import Document
from seamark.ui import views
from seamark.ui.answers import Answers
from seamark.ui.places import Place
from seamark.ui.rendering import Rendering
from seamark.ui.threads import DaemonThreads

log = logger_named(__name__)

_RENDERING: Final = 2
"""Threads that make pages out of documents."""
_STATUSES: Final = (
    (views.NotThere, HTTPStatus.NOT_FOUND),
    (CheckpointNotFoundError, HTTPStatus.NOT_FOUND),
    (InvalidInputError, HTTPStatus.BAD_REQUEST),
    (StoreUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (RefusedError, HTTPStatus.CONFLICT),
    (DamageError, HTTPStatus.UNPROCESSABLE_ENTITY),
)

Answer = Callable[[Request], Awaitable[Response]]


class Responses:
    """Makes them. ``redact`` hides the secrets that this process knows."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._rendering = Rendering(redact)
        self._rendering.compile_all()
        self._threads = DaemonThreads(_RENDERING, "seamark-ui-page")
        self._made = Answers(self._threads, "the page")

    async def html(
        self,
        template: str,
        context: Document,
        place: Place | None = None,
        status: HTTPStatus = HTTPStatus.OK,
        *,
        shared: Hashable = None,
    ) -> Response:
        """A page; one that is ``shared`` is made once for all who ask for the same of it."""
        shown = {
            **context,
            "place": None if place is None else views.place_row(place),
            "title": None if place is None else place.name,
        }
        make = partial(self._rendering.page, template, shown)
        if shared is not None:
            return HTMLResponse(await self._made.get((template, shared), make), status)
        loop = asyncio.get_running_loop()
        return HTMLResponse(await loop.run_in_executor(self._threads, make), status)

    async def json(self, document: Document, status: HTTPStatus = HTTPStatus.OK) -> Response:
        """A document as the commands print it."""
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(self._threads, self._rendering.json, document)
        return Response(data, status, media_type="application/json")

    def api(self, answer: Callable[[Request], Awaitable[Document]]) -> Answer:
        """A document as JSON, and errors as the commands print them."""

        async def told(request: Request) -> Response:
            try:
                return await self.json(await answer(request))
            except SeamarkError as error:
                return await self.json({"error": views.error_document(error)}, _status(error))

        return told

    async def error(self, error: SeamarkError, place: Place | None) -> Response:
        """A page that says what went wrong."""
        document = {"error": views.error_document(error)}
        return await self.html("error.html", document, place, _status(error))

    async def http_error(self, _: Request, error: Exception) -> Response:
        """What Starlette refuses, such as an address that there is not."""
        status = getattr(error, "status_code", HTTPStatus.NOT_FOUND)
        what = {"what": f"There is nothing at this address ({status}).", "where": None}
        document = {"error": {**what, "hint": "The overview has all that there is."}}
        return await self.html("error.html", document, None, HTTPStatus(status))

    async def fault(self, _: Request, error: Exception) -> Response:
        """A fault of ours."""
        log.error("a page could not be made", exc_info=error)
        what = {"what": "This should not have happened.", "where": None}
        hint = "It is a fault of Seamark itself. The log of 'seamark ui' says more."
        document = {"error": {**what, "hint": hint}}
        return await self.html("error.html", document, None, HTTPStatus.INTERNAL_SERVER_ERROR)

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown()


def _status(error: SeamarkError) -> HTTPStatus:
    matches = (status for kind, status in _STATUSES if isinstance(error, kind))
    return next(matches, HTTPStatus.INTERNAL_SERVER_ERROR)
