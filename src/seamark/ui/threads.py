"""A few threads that never keep a process from ending.

``ThreadPoolExecutor`` waits for its threads at exit, and a store that does not answer would hold up
whoever wants to leave. Nothing here writes to a store, so a thread may end at any instruction.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Work = tuple["Future[Any]", Callable[..., Any], Any, Any]


class DaemonThreads(Executor):
    """At most ``most`` threads, started as they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called by one of the threads."""
        future: Future[T] = Future()
        self._work.put((future, fn, args, kwargs))
        if not self._idle.acquire(blocking=False):
            with self._lock:
                if self._threads < self._most:
                    self._threads += 1
                    name = f"{self._name}-{self._threads}"
                    threading.Thread(target=self._run, name=name, daemon=True).start()
        return future

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, function, args, kwargs = work
            if future.set_running_or_notify_cancel():
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - raised where the result is wanted
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del work, future, function, args, kwargs
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end when they have done what they were asked; nobody waits for them."""
        del wait, cancel_futures
        for _ in range(self._most):
            self._work.put(None)
