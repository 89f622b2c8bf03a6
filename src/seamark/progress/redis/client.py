"""Talking to a Redis, Valkey or Garnet server: its URL, what its errors mean, what it may lose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from seamark import limits
from seamark._common.checks import check_text
from seamark._common.text import shortened
from seamark._redaction import Redactor
from seamark.errors import (
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.progress.redis.answers import check_answers, parser_class

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")

_NAMESPACE: Final = "namespace"
_SECONDS: Final = 10.0
_DATABASE: Final = re.compile(r"/?\d*")
_OURS: Final = frozenset(
    {"decode_responses", "encoding", "protocol", "retry", "retry_on_error", "retry_on_timeout"}
)
"""Options that determine how answers are decoded."""


def check_url(url: str) -> None:
    """:class:`InvalidInputError` for a URL that would be split in the wrong places.

    Otherwise an unquoted password would show up as part of the path.
    """
    try:
        parts = urlsplit(url)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        is_good = (
            parts.port != 0
            and _DATABASE.fullmatch(parts.path) is not None
            and not parts.fragment
            and all(map(str.isidentifier, names))
        )
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidInputError(
            "this Redis URL cannot be read; one is redis://user:password@host:6379/0",
            hint="In a password, / ? # and @ are written as %2F %3F %23 and %40.",
        )
    if taken := sorted(_OURS & {name for name, _ in parse_qsl(parts.query)}):
        raise InvalidInputError(f"a Redis URL cannot set {', '.join(taken)} here")


def split_url(url: str, namespace: str | None) -> tuple[str, str]:
    """The URL without the namespace, and the namespace, from the one or the other."""
    check_url(url)
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    inside = [value for name, value in pairs if name == _NAMESPACE]
    chosen = namespace if namespace is not None else (inside[0] if inside else None)
    if chosen is None:
        raise InvalidInputError(
            "a progress store in Redis needs a namespace",
            hint="One for each pipeline: redis://host:6379/0?namespace=orders",
        )
    check_text(chosen, "a namespace")
    if "{" in chosen or "}" in chosen or "\x00" in chosen:
        raise InvalidInputError(
            f"a namespace has no braces and no NUL, not {chosen!r}",
            hint="Redis Cluster chooses a key's slot by the text in braces.",
        )
    query = urlencode([pair for pair in pairs if pair[0] != _NAMESPACE])
    return parts._replace(query=query).geturl(), chosen


def shown_url(url: str) -> str:
    """The URL without user, password and options, for people and records."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def connect(url: str) -> Redis:
    """A client; nothing is sent yet."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "a redis:// store needs the package redis", hint="pip install 'seamark[redis]'"
        ) from error
    settings: dict[str, Any] = {
        "decode_responses": False,
        "protocol": 2,  # what every server of the family speaks
        "socket_timeout": _SECONDS,
        "socket_connect_timeout": _SECONDS,
        # a command that the client repeats on its own may run twice; retries are done here
        "retry": Retry(NoBackoff(), 0),
        "parser_class": parser_class(),
    }
    try:
        client = redis.Redis.from_url(url, **settings)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the Redis URL cannot be used: {_redactor(url)(str(error))}", where=shown_url(url)
        ) from None
    check_answers(client)
    return client


class Errors:
    """Turns the client's errors into ours, without secrets."""

    def __init__(self, url: str) -> None:
        self._redacted = _redactor(url)
        self.where = shown_url(url)

    @contextmanager
    def translated(self, doing: str, key: str = "") -> Iterator[None]:
        """Raise what an error means for the user; ``key`` is the one that is read or written."""
        from redis.exceptions import RedisError

        try:
            yield
        except SeamarkError:
            raise
        except (RedisError, OSError) as error:
            raise self.meant(error, doing, key) from None

    def meant(self, error: Exception, doing: str, key: str = "") -> SeamarkError:
        """Our error for one of the client's."""
        from redis import exceptions as theirs

        # a half of a password would not be recognised
        text = shortened(self._redacted(str(error)), limits.LONGEST_REASON)
        text = text or type(error).__name__
        if isinstance(error, theirs.MovedError | theirs.AskError | theirs.ClusterDownError):
            return RefusedError(
                f"{doing}: this server is one node of a cluster, and not the one that has the "
                f"keys ({text})",
                where=self.where,
                hint="Give the address of the node that serves the namespace's slot.",
            )
        if isinstance(error, theirs.ResponseError) and "WRONGTYPE" in text:
            which = f"the key {key!r}" if key else "a key"
            return DamageError(
                f"{doing}: {which} holds something else than a progress store writes ({text})",
                where=self.where,
                hint="Something else uses this namespace. Remove the key, or use another one.",
            )
        return StoreUnavailableError(f"{doing}: {text}", where=self.where, hint=_hint(error))


def _hint(error: Exception) -> str:
    from redis import exceptions as theirs

    if isinstance(error, theirs.AuthenticationError | theirs.NoPermissionError):
        return "Check the user and password of the URL, and what they may do."
    if isinstance(error, theirs.OutOfMemoryError):
        return "The server's memory is full. Give it more, or keep less in it."
    if isinstance(error, theirs.ReadOnlyError):
        return "This server is a replica. Give the address of the primary."
    return "Is the server running and reachable? Nothing was concluded; try again."


def _redactor(url: str) -> Redactor:
    password = urlsplit(url).password or ""
    return Redactor({**dict(parse_qsl(urlsplit(url).query)), "password": password})


def number(meta: Mapping[bytes, bytes], field: bytes, key: str, where: str) -> int | None:
    """A field that is a number from 0 to 2**64 - 1, or None when there is none."""
    text = meta.get(field)
    if text is None:
        return None
    # int() takes signs, spaces and underscores too
    if not text.isdigit() or len(text) > 20 or (value := int(text)) >= 2**64:
        raise DamageError(
            f"the field {field.decode(errors='replace')!r} of the key {key!r} is not a number "
            f"from 0 to 2**64 - 1",
            where=where,
            hint="Something else has written here. Restore the server from a save, or remove "
            "the key and start over.",
        )
    return value


_UNKNOWN: Final = (
    "the server does not say how durable it is (CONFIG and INFO are not allowed): check "
    "yourself that appendonly is on and appendfsync is always"
)


def persistence_warnings(client: Any) -> list[str]:
    """What a restart of the server may lose, as messages; empty when nothing is at risk."""
    info = _answer(lambda: dict(client.info("persistence")))
    return judge_persistence(_answer(lambda: _config(client)), info)


def judge_persistence(
    config: Mapping[str, str] | None, info: Mapping[str, Any] | None
) -> list[str]:
    """The warnings that follow from what a server says of itself; None where it does not. Pure."""
    if config is None and info is None:
        return [_UNKNOWN]
    config, info = config or {}, info or {}
    warnings = []
    if "appendonly" in config:
        logs = config["appendonly"] == "yes"
    else:
        logs = info.get("aof_enabled") in (1, "1")
    if not logs:
        warnings.append(
            "appendonly is off: a restart of the server loses everything since its last save "
            "(CONFIG SET appendonly yes)"
        )
    elif config.get("appendfsync", "always") != "always":
        warnings.append(
            f"appendfsync is {config['appendfsync']}: a power cut loses about the last second of "
            "what was acknowledged (CONFIG SET appendfsync always)"
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        warnings.append("the server failed to write its log: is its disk full?")
    policy = config.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and config.get("maxmemory", "0") != "0":
        warnings.append(
            f"maxmemory-policy is {policy}: when its memory is full the server drops keys by "
            "itself (CONFIG SET maxmemory-policy noeviction)"
        )
    return warnings


def _answer(question: Callable[[], T]) -> T | None:
    """What a server answers; None when it may not be asked."""
    from redis.exceptions import RedisError

    try:
        return question()
    except (RedisError, OSError):
        return None


def _config(client: Any) -> dict[str, str]:
    names = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")
    pairs = [pair for name in names for pair in client.config_get(name).items()]
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return shortened(text, limits.LONGEST_PREFIX)
