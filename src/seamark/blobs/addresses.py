"""Where an object store really is, however its address is spelled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_ENDPOINTS: Final = {
    "S3Store": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "AzureStore": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ACCOUNTS: Final = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
_LOOPBACK: Final = "loopback"


def address_of(
    kind: str,
    config: Mapping[str, Any],
    prefix: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Kind of store, service, bucket and folders; empty when the bucket is not known.

    What the options leave out, the client takes from the environment. Two names of this machine
    are one service, and so are a bucket in the host's name, in the path, and next to it.
    """
    bucket = str(config.get("bucket") or config.get("container_name") or "")
    if not bucket:
        return ()
    env = os.environ if environment is None else environment
    endpoint = str(config.get("endpoint") or _first(env, _ENDPOINTS.get(kind, ())))
    account = str(config.get("account_name") or _first(env, _ACCOUNTS)).lower()
    folders = [part for part in prefix.split("/") if part]
    return (kind, _service(kind, endpoint, bucket, account), bucket, *folders)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _service(kind: str, endpoint: str, bucket: str, account: str) -> str:
    """Host, port and path of a service."""
    if not endpoint:
        return account if kind == "AzureStore" else ""
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        port = parts.port or _PORTS.get(parts.scheme.lower(), 0)
    except ValueError:
        return endpoint.rstrip("/")
    host = (parts.hostname or "").rstrip(".").removeprefix(f"{bucket.lower()}.")
    path = [part for part in parts.path.split("/") if part]
    if path[-1:] == [bucket]:
        path.pop()
    if kind == "S3Store" and host.endswith(".amazonaws.com") and host.startswith("s3"):
        return ""  # buckets of Amazon have names of their own
    if kind == "AzureStore" and host.endswith(".core.windows.net"):
        return host.partition(".")[0]
    return "/".join([f"{_LOOPBACK if _is_this_machine(host) else host}:{port}", *path])


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)
