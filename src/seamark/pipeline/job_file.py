"""The pipeline that a program declares: ``job.py``, or ``job.py:name``.

The program is run, as ``python job.py`` would run it, but under its own name and not ``__main__``.
``name``, or ``pipeline``, is a :class:`Pipeline`, or a function that gives one. A function with a
parameter is given a Spark session.

Tests: ``tests/pipeline/test_job_file.py``.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from seamark._redaction import redacted
from seamark.errors import InvalidInputError, SeamarkError
from seamark.pipeline.declaration.only_declared import only_declared
from seamark.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_NAME: Final = "pipeline"
_SPEC: Final = re.compile(r"(?P<path>.+?)(?::(?P<name>[A-Za-z_]\w*))?")


def load_pipeline(job: str, session: Callable[[], SparkSession]) -> Pipeline:
    """The pipeline of a program; ``session`` gives the session for a function that takes one.

    The program's code is run. Starting its pipeline is refused meanwhile: :class:`RefusedError`.
    :class:`InvalidInputError` when there is no such program, or no pipeline in it;
    :class:`SeamarkError` when the program fails.
    """
    match = _SPEC.fullmatch(job)
    path, name = (match["path"], match["name"] or _DEFAULT_NAME) if match else (job, _DEFAULT_NAME)
    if not os.path.isfile(path):
        raise InvalidInputError(f"there is no program {path}", hint="Give it as job.py[:name].")
    with only_declared(path), _failures_of(path):
        found = getattr(_module(path), name, None)
        if callable(found):
            found = found(session()) if inspect.signature(found).parameters else found()
    if not isinstance(found, Pipeline):
        what = f"its {name!r} is {type(found).__name__}" if found is not None else f"no {name!r}"
        raise InvalidInputError(
            f"{path} declares no pipeline: {what}",
            hint="Name a Pipeline, or a function that gives one: job.py:name.",
        )
    return found


def _module(path: str) -> Any:
    # a name of its own: the program may be called like a package that others import
    name = f"seamark_job_{re.sub(r'[^0-9A-Za-z]', '_', os.path.basename(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInputError(f"{path} is not a Python program")
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what is next to it can be imported, now and later
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _failures_of(path: str) -> Iterator[None]:
    try:
        yield
    except SeamarkError:
        raise
    except (Exception, SystemExit) as error:
        raise SeamarkError(
            f"the program {path} failed",
            where=redacted(f"{type(error).__name__}: {error}"),
            hint="It has to declare its pipeline without being told more; -vv shows the traceback.",
        ) from error
