"""The addresses of the page, and what is answered there.

Tests: ``tests/ui/test_pages.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from seamark._common.logs import logger_named
from seamark.errors import (
    RefusedError,
    SeamarkError,
)
from seamark.reports.document import Document
from seamark.spark.source_gaps import gap_texts
from seamark.ui import bounds, views
from seamark.ui.checks import KINDS, check_of
from seamark.ui.directory_watch import DirectoryWatch
from seamark.ui.guard import Access, Guard
from seamark.ui.live import Live
from seamark.ui.places import Place
from seamark.ui.rendering import assets
from seamark.ui.responses import Answer, Responses
from seamark.ui.row_pages import RowPages, asked_in, page_document, query_of
from seamark.ui.row_source import RowsAsked
from seamark.ui.runs import Run, Runs
from seamark.ui.store_watch import StoreWatch

log = logger_named(__name__)

_METHODS: Final = ("GET", "HEAD", "POST")
_KEPT_CHECKS: Final = len(KINDS) * bounds.MOST_PLACES
_FIRST_PAINT: Final = 0.15
"""Seconds that a page waits for a store before it is shown without it; news come later."""
_PATIENCE: Final = 5.0
"""The same for an address that says nothing without the store."""


class Page:
    """The application: places, the looks at them, and the checks that run."""

    def __init__(
        self,
        places: Sequence[Place],
        access: Access,
        *,
        redact: Callable[[str], str],
        every: float = bounds.LOOK_EVERY,
    ) -> None:
        self.live = Live(places, every, views.health_word)
        self.checks = Runs("seamark-ui-check", "check", most=bounds.MOST_CHECKS, kept=_KEPT_CHECKS)
        self.rows = RowPages()
        self._places = list(places)
        self._responses = Responses(redact)
        self._assets = assets()
        inner = Starlette(
            routes=[*self._pages(), *self._documents()],
            lifespan=self._lifespan,
            exception_handlers={
                HTTPException: self._responses.http_error,
                Exception: self._responses.fault,
            },
        )
        self.app: ASGIApp = Guard(inner, access, _METHODS)

    def _pages(self) -> list[Route]:
        def get(path: str, answer: Answer) -> Route:
            return Route(path, self._told(answer), methods=["GET"])

        return [
            get("/", self.overview),
            get("/p/{place}", self.place),
            get("/p/{place}/checkpoint/{number}", self.checkpoint),
            get("/p/{place}/diff", self.diff),
            get("/p/{place}/restart", self.restart),
            Route("/p/{place}/restart/{check}", self._told(self.start), methods=["POST"]),
            get("/p/{place}/rows", self.state_rows),
            Route("/p/{place}/rows", self._told(self.read_rows), methods=["POST"]),
            get("/events", self.events),
            get("/static/{name}", self.asset),
        ]

    def _documents(self) -> list[Route]:
        def get(path: str, answer: Callable[[Request], Awaitable[Document]]) -> Route:
            return Route(path, self._responses.api(answer), methods=["GET"])

        return [
            get("/api/places", self._overview),
            get("/api/p/{place}/list", self._list),
            get("/api/p/{place}/history", self._history),
            get("/api/p/{place}/show/{number}", self._show),
            get("/api/p/{place}/diff/{a}/{b}", self._diff),
            get("/api/p/{place}/inspect", self._inspect),
            Route(
                "/api/p/{place}/checks/{check}",
                self._responses.api(self._check),
                methods=[*_METHODS],
            ),
            Route("/api/p/{place}/rows", self._responses.api(self._rows), methods=[*_METHODS]),
        ]

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.live.start()
        try:
            yield
        finally:
            await self.live.close()
            self.checks.close()
            self.rows.close()
            for place in self._places:
                place.close()
            self._responses.close()

    # pages

    async def overview(self, request: Request) -> Response:
        """All places."""
        await self.live.want_all(_FIRST_PAINT)
        shared = tuple((place.revision, views.running_step(place)) for place in self._places)
        return await self._responses.html(
            "overview.html", views.overview(self._places), shared=shared
        )

    async def place(self, request: Request) -> Response:
        """The history of a store, or what a directory holds."""
        place = await self._place(request, _FIRST_PAINT)
        if isinstance(place.watch, DirectoryWatch) and place.watch.document is not None:
            return await self._responses.html(
                "directory.html", {"directory": views.directory(place)}, place
            )
        if not isinstance(place.watch, StoreWatch) or place.looked_at is None:
            return await self._responses.html("waiting.html", {}, place)
        before = _number(request, "before")
        table = await views.table(place, before)
        # the same for all viewers until there is news
        shared = (place.slug, place.revision, views.running_step(place), before)
        return await self._responses.html("history.html", {"table": table}, place, shared=shared)

    async def checkpoint(self, request: Request) -> Response:
        """One checkpoint."""
        place = await self._place(request)
        text = request.path_params["number"]
        if text == "latest":
            where = f"/p/{place.slug}/checkpoint/{views.newest(place)}"
            return RedirectResponse(where, HTTPStatus.SEE_OTHER)
        number = views.checkpoint_number(text)
        document = await views.checkpoint(place, number)
        more = {
            "show": document,
            "around": views.neighbours(place, number),
            "chain": await views.chain(place, document),
            "gap_texts": gap_texts(document["gaps"]),
        }
        return await self._responses.html("checkpoint.html", more, place)

    async def diff(self, request: Request) -> Response:
        """Two checkpoints side by side."""
        place = await self._place(request)
        a, b = (_required(request, name) for name in ("a", "b"))
        document = await views.compared(place, a, b)
        shown = document | {"gap_texts": gap_texts(document["gaps"])}
        return await self._responses.html("diff.html", {"diff": shown}, place)

    async def restart(self, request: Request) -> Response:
        """What a start would do, and the commands for everything else."""
        place = await self._place(request)
        views.store_of(place)
        checks = {kind: self._check_document(place, kind) for kind in KINDS}
        return await self._responses.html("restart.html", {"checks": checks}, place)

    async def start(self, request: Request) -> Response:
        """Start a check from a form, and go back to where it is seen."""
        place = await self._place(request)
        self._start(place, request)
        return RedirectResponse(f"/p/{place.slug}/restart", HTTPStatus.SEE_OTHER)

    async def state_rows(self, request: Request) -> Response:
        """Rows of state that were read, or a button that has them read."""
        place = await self._place(request)
        asked = asked_in(place, request.query_params)
        run = self.rows.last(place, asked)
        shown = {"page": page_document(asked, run), "run": _run_document("rows", run)}
        shown["run"].pop("document")
        return await self._responses.html("rows.html", shown, place)

    async def read_rows(self, request: Request) -> Response:
        """Have rows read, and go to where they are seen; those that were read are shown at once."""
        place = await self._place(request)
        asked = asked_in(place, request.query_params)
        self._start_rows(place, asked, request)
        return RedirectResponse(f"/p/{place.slug}/rows?{query_of(asked)}", HTTPStatus.SEE_OTHER)

    async def events(self, request: Request) -> Response:
        """News of one place, or of all."""
        asked = request.query_params.get("place")
        slugs = frozenset(
            self.live.places if asked is None else [(await self._place(request)).slug]
        )
        if not self.live.has_room:
            raise RefusedError("too many people look at this page", hint="Try again later.")
        kind = "text/event-stream"
        return StreamingResponse(self.live.events(slugs), media_type=kind)

    async def asset(self, request: Request) -> Response:
        """A script or stylesheet of our own."""
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            raise views.NotThere("there is no such file")
        headers = {"etag": asset.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == asset.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(asset.data, media_type=asset.type, headers=headers)

    # documents

    async def _overview(self, request: Request) -> Document:
        await self.live.want_all(_PATIENCE)
        return views.overview(self._places)

    async def _list(self, request: Request) -> Document:
        return await views.listing(await self._place(request), _number(request, "before"))

    async def _history(self, request: Request) -> Document:
        place = await self._place(request)
        first, last = _number(request, "first"), _number(request, "last")
        return await views.history(place, first, last, self._places)

    async def _show(self, request: Request) -> Document:
        number = views.checkpoint_number(request.path_params["number"])
        return await views.checkpoint(await self._place(request), number)

    async def _diff(self, request: Request) -> Document:
        a, b = (views.checkpoint_number(request.path_params[name]) for name in ("a", "b"))
        return await views.compared(await self._place(request), a, b)

    async def _inspect(self, request: Request) -> Document:
        return views.directory(await self._place(request))

    async def _check(self, request: Request) -> Document:
        place = await self._place(request)
        kind = request.path_params["check"]
        if kind not in KINDS:
            raise views.NotThere("there is no such check", hint=f"There are {', '.join(KINDS)}.")
        if request.method == "POST":
            self._start(place, request)
        return self._check_document(place, kind)

    def _start(self, place: Place, request: Request) -> None:
        kind = request.path_params["check"]
        if kind not in KINDS:
            raise views.NotThere("there is no such check", hint=f"There are {', '.join(KINDS)}.")
        watch = views.store_of(place)
        if "stop" in request.query_params:
            self.checks.stop((place.slug, kind))
        else:
            self.checks.start((place.slug, kind), kind, check_of(kind, lambda: watch.store))

    def _check_document(self, place: Place, kind: str) -> Document:
        return _run_document(kind, self.checks.last((place.slug, kind)))

    async def _rows(self, request: Request) -> Document:
        place = await self._place(request)
        asked = asked_in(place, request.query_params)
        if request.method == "POST":
            self._start_rows(place, asked, request)
        return _run_document("rows", self.rows.last(place, asked))

    def _start_rows(self, place: Place, asked: RowsAsked, request: Request) -> None:
        if "stop" in request.query_params:
            self.rows.stop(place, asked)
        else:
            self.rows.start(place, asked)

    # how answers are made

    async def _place(self, request: Request, patience: float = _PATIENCE) -> Place:
        slug = request.path_params.get("place") or request.query_params.get("place", "")
        if slug not in self.live.places:
            raise views.NotThere(
                "there is no such store here", hint="The overview has all that this page shows."
            )
        return await self.live.want(slug, patience)

    def _told(self, answer: Answer) -> Answer:
        """The same with errors as pages."""

        async def told(request: Request) -> Response:
            try:
                return await answer(request)
            except SeamarkError as error:
                place = self.live.places.get(request.path_params.get("place", ""))
                return await self._responses.error(error, place)

        return told


def _run_document(kind: str, run: Run | None) -> Document:
    """How far some work is, and what it has found."""
    if run is None:
        return {"check": kind, "state": "none", "document": None, "error": None}
    error = None if run.error is None else views.error_document(run.error)
    return run.status() | {"document": run.document, "error": error}


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if not text else views.checkpoint_number(text)


def _required(request: Request, name: str) -> int:
    return views.checkpoint_number(request.query_params.get(name, ""))
