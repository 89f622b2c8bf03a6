"""Whether a Redis server keeps what it has acknowledged: what to warn about.

Tests: ``tests/progress/test_redis.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from seamark._common.logs import logger_named
from seamark.progress.ledger import Ledger
from seamark.progress.redis.ledger import RedisLedger

log = logger_named("seamark.progress")

_UNKNOWN: Final = (
    "the server does not say how durable it is (CONFIG and INFO are not allowed): check "
    "yourself that appendonly is on and appendfsync is always"
)


def warn_of_losses(ledger: Ledger) -> None:
    """Log what a restart of the server may lose."""
    if isinstance(ledger, RedisLedger):
        for warning in persistence_warnings(ledger):
            log.warning("%s: %s", ledger.url, warning)


def persistence_warnings(ledger: RedisLedger) -> list[str]:
    """What a restart of the server may lose, as messages; empty when nothing is at risk."""
    return judge_persistence(_config(ledger.client), _info(ledger.client))


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
        logs = bool(int(info.get("aof_enabled", 0) or 0))
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


def _config(client: Any) -> dict[str, str] | None:
    from redis.exceptions import RedisError

    settings: dict[str, str] = {}
    try:
        for name in ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy"):
            settings.update({_text(k): _text(v) for k, v in client.config_get(name).items()})
    except (RedisError, OSError):
        return None
    return settings


def _info(client: Any) -> dict[str, Any] | None:
    from redis.exceptions import RedisError

    try:
        return dict(client.info("persistence"))
    except (RedisError, OSError):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
