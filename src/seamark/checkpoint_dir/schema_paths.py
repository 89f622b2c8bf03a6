"""Schema files that Spark's description of an operator names, by absolute paths.

Spark opens what such a path says, on any file system and server. So a description is used only when
each of its paths ends in ``/state/<the operator>/_stateSchema/…``, and what stands before that is
replaced by the directory's own URI, or compared with it. Spark 4.3 has these paths in
``stateSchemaFilePaths`` of each store, and none in ``operatorPropertiesJson``.

Tests: ``tests/checkpoint_dir/test_schema_paths.py``.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from seamark._common.checks import unsafe_path
from seamark._common.json_documents import UNREADABLE, decode_unambiguous
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.operators import description_fields
from seamark.errors import DamageError, RefusedError
from seamark.limits import LONGEST_PATH

ROOT_MARK: Final = "{seamark:root}"
"""Stands for the directory's own URI in files that hold absolute paths."""

_DESCRIPTION: Final = re.compile(r"state/([0-9]+)/_metadata/v2/.+", re.DOTALL)
_MEMBER: Final = "SchemaFilePath"
_FOLDER: Final = "/_stateSchema/"
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PLACE: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)")
_LONGEST_SHOWN: Final = 200


class ForeignSchemaError(DamageError):
    """A description names something as a schema that is none of its operator."""


class SchemaPath(NamedTuple):
    """One schema file, as a description names it."""

    root: str
    """The directory that it is said to be in."""
    file: str
    """Its path in that directory."""


def schema_paths(path: str, data: bytes) -> list[SchemaPath]:
    """The schema files that a description names; none for any other file of the directory.

    :class:`DamageError` when it cannot be read, :class:`ForeignSchemaError` when it names anything
    else as a schema.
    """
    described = _DESCRIPTION.fullmatch(path)
    if described is None:
        return []
    number = int(described[1])
    return [_split(path, number, named) for named in _named(description_fields(number, data))]


def with_root(path: str, data: bytes, root: str) -> bytes:
    """A file of the directory whose absolute paths, if it can have any, lead below ``root``.

    :class:`DamageError` as for :func:`schema_paths`.
    """
    named = schema_paths(path, data)
    if not named:
        return data
    moved = {f"{each.root}/{each.file}": f"{root}/{each.file}" for each in named}

    def replaced(match: re.Match[str]) -> str:
        text = match[0]
        new = moved.get(json.loads(text) if "\\" in text else text[1:-1])
        return text if new is None else json.dumps(new, ensure_ascii=False)

    # text by text and not as a document, which keeps all other bytes as Spark has written them
    return _TEXT.sub(replaced, data.decode()).encode()


def require_schemas_inside(files: CheckpointFiles, number: int) -> None:
    """:class:`RefusedError` unless all schemas of an operator are named as files of the directory.

    To be asked before Spark opens a directory where it lies. :class:`DamageError` as for
    :func:`schema_paths`.
    """
    for path, schema in operator_schemas(files, number):
        if not is_same_place(schema.root, files.uri):
            raise RefusedError(
                f"{path} names a schema in another directory, and Spark would read it there",
                where=f"{files.uri}: {_shown(schema.root)}",
                hint="Make copies of a directory by seamark spark snapshot and restore: they "
                "rewrite such paths.",
            )


def operator_schemas(files: CheckpointFiles, number: int) -> list[tuple[str, SchemaPath]]:
    """Each schema file that one of an operator's descriptions names, after the latter's path.

    :class:`DamageError` as for :func:`schema_paths`.
    """
    found: list[tuple[str, SchemaPath]] = []
    for path in files.files_below(f"state/{number}/_metadata/v2"):
        try:
            data = files.read(path)
        except FileNotFoundError:  # a running query removes old ones
            continue
        found += [(path, schema) for schema in schema_paths(path, data)]
    return found


def is_same_place(named: str, uri: str) -> bool:
    """Whether a directory that a description names is the one with this URI."""
    scheme_a, host_a, path_a = _place(named)
    scheme_b, host_b, path_b = _place(uri)
    if scheme_b == "file":
        if scheme_a not in ("", "file") or len(path_a) > LONGEST_PATH:
            return False  # and a longer one takes the square of its length to be followed
        return os.path.realpath(path_a) == os.path.realpath(path_b)
    same_host = host_a == host_b or not host_a or not host_b
    return scheme_a[:2] == scheme_b[:2] and same_host and path_a == path_b


def _place(uri: str) -> tuple[str, str, str]:
    match = _PLACE.fullmatch(uri)
    if match is None:
        return "", "", uri
    return match[1] or "", match[2] or "", "/" + match[3].strip("/")


def _named(fields: dict[str, Any]) -> Iterator[object]:
    """Everything that a description has in the place of a schema file, or that looks like one."""
    waiting: list[tuple[object, bool]] = [(fields, False)]
    while waiting:
        value, is_schema = waiting.pop()
        if isinstance(value, dict) and not is_schema:
            waiting += [(inner, _MEMBER in name) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(inner, is_schema) for inner in value]
        elif is_schema:
            yield value
        elif isinstance(value, str):
            inside = _document_in(value)
            if inside is not None:
                # in a list, which is refused: Spark has no paths there, and they are not rewritten
                yield from ([named] for named in _named({"": inside}))
            elif _FOLDER in value:
                yield value


def _document_in(text: str) -> object:
    """The object or list whose JSON a text is; None for any other text."""
    try:
        return decode_unambiguous(text) if text.lstrip()[:1] in ("{", "[") else None
    except UNREADABLE:
        return None


def _split(path: str, number: int, named: object) -> SchemaPath:
    """Directory and file; :class:`ForeignSchemaError` for what is no schema of the operator."""
    folder = f"state/{number}{_FOLDER}"
    root, found, name = named.rpartition(f"/{folder}") if isinstance(named, str) else ("", "", "")
    if not found or name.endswith("/") or unsafe_path(name) or _CONTROL.search(root + name):
        raise ForeignSchemaError(
            f"{path} names {_shown(named)} as a schema, which is no file below {folder}",
            hint="Spark writes no such path, and would open it wherever it leads. Put the file "
            "back from a copy of the directory.",
        )
    return SchemaPath(root, folder + name)


def _shown(named: object) -> str:
    text = repr(named)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
