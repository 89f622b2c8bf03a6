"""What a server may answer: anything else is an error of the connection, and not of this program.

The client believes that it talks to Redis. Of an answer that is none it makes whatever Python has
for it, and of one of another kind something that is used for what was asked.

Tests: ``tests/progress/redis/test_answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Read = Callable[..., Any]

_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What the client raises over bytes that it does not understand: no number, nested too deeply."""
_NOT_REDIS: Final = "the server's answer makes no sense. Is it Redis?"


def parser_class() -> type[Any]:
    """The client's own parser. What it cannot read breaks the connection: the rest of the answer
    would be taken for the next one."""
    from redis.connection import DefaultParser
    from redis.exceptions import ConnectionError as Broken

    base: Any = DefaultParser

    class Parser(base):  # type: ignore[misc]  # which one it is depends on what is installed
        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().read_response(*args, **kwargs)
            except _UNREADABLE:
                raise Broken(_NOT_REDIS) from None

    return Parser


def check_answers(client: Any) -> None:
    """Have a client refuse answers of another kind than what was asked; pipelines do as well."""
    kinds: dict[str, Read] = {
        "HGETALL": _fields,
        "HGET": _value,
        "HMGET": _values,
        "HINCRBY": _number,
        "TYPE": _text,
        "_": _several,  # the client's name for the answers to a transaction
    }
    for command in ("INFO", "CONFIG GET"):
        kinds[command] = client.response_callbacks[command]
    for command, read in kinds.items():
        client.set_response_callback(command, _checked(read))


def _checked(read: Read) -> Read:
    def answer(response: Any, **options: Any) -> Any:
        from redis.exceptions import InvalidResponse

        try:
            return read(response, **options)
        except _UNREADABLE:
            raise InvalidResponse(_NOT_REDIS) from None

    return answer


def _of(kinds: type | tuple[type, ...], response: Any) -> Any:
    if not isinstance(response, kinds):
        raise TypeError
    return response


def _value(response: Any, **_: Any) -> bytes | None:
    return None if response is None else _text(response)


def _text(response: Any, **_: Any) -> bytes:
    text: bytes = _of(bytes, response)
    return text


def _number(response: Any, **_: Any) -> int:
    number: int = _of(int, response)
    return number


def _values(response: Any, **_: Any) -> list[bytes | None]:
    return [_value(each) for each in _of(list, response)]


def _fields(response: Any, **_: Any) -> dict[bytes, bytes]:
    parts = [_text(each) for each in _of(list, response)]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _several(response: Any, **_: Any) -> Any:
    return _of((list, bytes, type(None)), response)
