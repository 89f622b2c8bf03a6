"""What the page shows: stores and checkpoint directories, each with a name for its address.

Tests: ``tests/ui/test_pages.py``.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from seamark._common.logs import logger_named
from seamark.blobs.addresses import can_hold_a_store, without_credentials
from seamark.checkpoint_dir.places.directory import open_directory
from seamark.errors import InvalidInputError, SeamarkError, StoreUnavailableError
from seamark.reports.document import Document
from seamark.reports.places import is_spark_directory, local_path, require_path
from seamark.store import open_store
from seamark.store.layout import OWNER_KEY
from seamark.ui.answers import Answers
from seamark.ui.bounds import MOST_PLACES, READ_PATIENCE
from seamark.ui.directory_watch import DirectoryWatch
from seamark.ui.row_process import ProcessReader, SparkProcess
from seamark.ui.row_source import RowReader
from seamark.ui.store_watch import StoreWatch
from seamark.ui.threads import DaemonThreads

log = logger_named(__name__)

Watch = StoreWatch | DirectoryWatch
_THREADS = 3


class Place:
    """A store or directory, who looks at it, and whether it answers."""

    def __init__(
        self,
        slug: str,
        name: str,
        url: str,
        open_watch: Callable[[], Watch],
        *,
        running: Callable[[], Document] | None = None,
        row_reader: Callable[[Watch], RowReader] | None = None,
    ) -> None:
        self.slug, self.name, self.url = slug, name, url
        self.running = running
        """Tells which epoch runs and its step, where the page is served by a pipeline."""
        self._open_watch = open_watch
        self._make_row_reader = row_reader
        self._row_reader: RowReader | None = None
        self._threads = DaemonThreads(_THREADS, f"seamark-ui-{slug}")
        self._looking: asyncio.Future[bool] | None = None
        self.answers = Answers(self._threads, url)
        self.watch: Watch | None = None
        """None until it has been found out what is there."""
        self.revision = 0
        """Grows whenever something is new."""
        self.looked_at: float | None = None
        """When it last answered, in seconds since the Unix epoch."""
        self.error: SeamarkError | None = None
        """Why it does not answer; None when it does."""
        self.failing_since: float | None = None

    async def look(self) -> bool:
        """Look once, and tell whether anything has changed, also whether it answers."""
        loop = asyncio.get_running_loop()
        if self._looking is None:
            self._looking = loop.run_in_executor(self._threads, self._look)
        try:
            # wait_for() of Python 3.11 can lose a cancellation
            async with asyncio.timeout(READ_PATIENCE):
                changed = await asyncio.shield(self._looking)
        except TimeoutError:
            slow = StoreUnavailableError(f"no answer in {READ_PATIENCE:.0f} s", where=self.url)
            return self._failed(slow)  # and the same look is waited for again
        except SeamarkError as error:
            self._looking = None
            return self._failed(error)
        except Exception as error:
            self._looking = None
            log.exception("looking at %s failed", self.url)
            return self._failed(
                SeamarkError(f"this should not have happened: {type(error).__name__}")
            )
        self._looking = None
        came_back = self.error is not None or self.looked_at is None
        self.error = self.failing_since = None
        self.looked_at = time.time()
        self.revision += changed or came_back
        return changed or came_back

    def _look(self) -> bool:
        if self.watch is None:
            self.watch = self._open_watch()
        return self.watch.look()

    def _failed(self, error: SeamarkError) -> bool:
        is_new = self.error is None or self.error.what != error.what
        self.failing_since = self.failing_since or time.time()
        self.error = error
        self.revision += is_new
        return is_new

    @property
    def is_unusable(self) -> bool:
        """Whether it cannot be shown, and asking again will hardly help."""
        return self.error is not None and not isinstance(self.error, StoreUnavailableError)

    def row_reader(self) -> RowReader | None:
        """What reads rows of its state; None where nothing does, or before it has answered."""
        if self._row_reader is None and self._make_row_reader is not None:
            self._row_reader = None if self.watch is None else self._make_row_reader(self.watch)
        return self._row_reader

    def close(self) -> None:
        """Give back what is held."""
        self._threads.shutdown()
        if self._row_reader is not None:
            self._row_reader.close()
        if self.watch is not None:
            self.watch.close()


def places_at(urls: Sequence[str], storage_options: Mapping[str, str]) -> list[Place]:
    """The places at some paths and URLs. Only the local ones must be there already."""
    if len(urls) > MOST_PLACES:
        raise InvalidInputError(
            f"{len(urls)} stores on one page are too many",
            hint=f"Give at most {MOST_PLACES}, and start another page for the rest.",
        )
    places: list[Place] = []
    process = SparkProcess()
    for url in urls:
        require_path(url, "store or checkpoint directory")
        if local_path(url) is None:
            without_credentials(url)
        shown = _shown(url)
        slug = _slug(shown, {place.slug for place in places})
        name = shown.rstrip("/").rpartition("/")[2] or shown
        look = partial(_watch_at, url, storage_options)
        rows = partial(_row_reader, process, url, storage_options)
        places.append(Place(slug, name, shown, look, row_reader=rows))
    return places


def _row_reader(
    process: SparkProcess, url: str, storage_options: Mapping[str, str], watch: Watch
) -> RowReader:
    options = {} if local_path(url) is not None else storage_options
    is_directory = isinstance(watch, DirectoryWatch)
    return ProcessReader(process, url, options, is_directory=is_directory)


def _watch_at(url: str, storage_options: Mapping[str, str]) -> Watch:
    """Find out what is there. A directory of Spark's has ``metadata``, a store ``owner.json``.

    What only Hadoop knows (``hdfs://``) is a directory, and is read through a Spark: that of this
    process, or one that is started.
    """
    path = local_path(url)
    options = dict(storage_options) if path is None else None
    is_directory = is_spark_directory(path) if path is not None else not can_hold_a_store(url)
    if path is None and not is_directory:
        with open_store(url, storage_options=options or None) as store:
            stat = store.backend.stat
            is_directory = stat(OWNER_KEY) is None and stat("metadata") is not None
    if is_directory:
        return DirectoryWatch(partial(open_directory, url, options))
    return StoreWatch(partial(open_store, url, storage_options=options or None), _shown(url))


def _shown(url: str) -> str:
    """A path in full, so that commands with it work everywhere; a URL as it is."""
    path = local_path(url)
    return url if path is None else os.path.abspath(path)


def _slug(url: str, taken: set[str]) -> str:
    """A short name for addresses: the last folders of the path, in letters that need no escape."""
    parts = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in url.split("/")]
    named = [part[:40].strip("-") for part in parts if part]
    slug = (named or ["store"])[-1]
    for part in reversed(named[:-1]):
        if slug not in taken:
            break
        slug = f"{part}-{slug}"[-80:].strip("-")
    number, unique = 2, slug
    while unique in taken:
        unique, number = f"{slug}-{number}", number + 1
    return unique
