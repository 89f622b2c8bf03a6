"""Real object-store servers on loopback, for tests: plain context managers.

``s3_server()`` runs moto's S3, ``azurite_server()`` runs Azurite, Azure's own emulator.

There is no server for Google Cloud Storage: ``obstore`` speaks its XML interface, and of the
emulators fake-gcs-server 1.56 refuses a plain XML upload, while gcp-storage-emulator 2026.7 accepts
it but ignores ``x-goog-if-generation-match``, so that every create would win.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import fcntl
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import Server, ServerUnavailable, running

AZURITE_VERSION = "3.37.0"
# Published by Microsoft for every emulator, and no secret.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
INSTALL_SECONDS = 600.0

# moto looks whether a key exists and then writes it, with nothing in between to stop another
# request: two creates could both win. Real S3 decides one at a time, and so does this.
SERIAL_MOTO = """
import sys, threading
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication, MotoRequestHandler, create_backend_app,
)
from werkzeug.serving import run_simple
moto = DomainDispatcherApplication(create_backend_app)
turn = threading.Lock()
def app(environ, start_response):
    with turn:
        return moto(environ, start_response)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=MotoRequestHandler)
"""


@dataclass(frozen=True)
class ObjectServer:
    """A running server: where it is, and how ``obstore`` reaches it."""

    endpoint_url: str
    url_scheme: str
    storage_options: Mapping[str, Any]
    create_bucket: Callable[[str], None]

    def new_bucket(self) -> str:
        """Create an empty bucket (on Azure: a container) and return its name."""
        name = f"test-{uuid.uuid4().hex}"
        self.create_bucket(name)
        return name

    def new_url(self, path: str = "") -> str:
        """Create an empty bucket and return the URL of ``path`` in it, as a user writes it."""
        return f"{self.url_scheme}://{self.new_bucket()}/{path}".rstrip("/")


@contextlib.contextmanager
def s3_server(*, serial: bool = True) -> Iterator[ObjectServer]:
    """Run moto's S3. With ``serial=False`` as it comes, racing conditional writes included."""

    def command(port: int) -> list[str]:
        if serial:
            return [sys.executable, "-c", SERIAL_MOTO, str(port)]
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    with running(_on_port("moto", command, ready="/moto-api/")) as server:
        port = server.port
        endpoint = f"http://127.0.0.1:{port}"
        options = {
            "endpoint": endpoint,
            "access_key_id": "testing",
            "secret_access_key": "testing",
            "region": "us-east-1",
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True},
        }

        def create(name: str) -> None:
            _request(port, "PUT", f"/{name}", {}, expected=200)

        yield ObjectServer(endpoint, "s3", options, create)


@contextlib.contextmanager
def azurite_server() -> Iterator[ObjectServer]:
    """Run Azurite's blob service, installed with npm at first use.

    Raises ServerUnavailable where node or npm is missing, or the installation fails.
    """
    script = _installed_azurite() / "node_modules/azurite/dist/src/blob/main.js"
    node = _tool("node")

    def command(port: int) -> list[str]:
        flags = "--blobHost 127.0.0.1 --inMemoryPersistence --skipApiVersionCheck --silent"
        quiet = ["--disableTelemetry", "--blobPort", str(port)]
        return [node, str(script), *flags.split(), *quiet]

    with running(_on_port("azurite", command, ready="/")) as server:
        port = server.port
        endpoint = f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}"
        options = {
            "account_name": AZURITE_ACCOUNT,
            "account_key": AZURITE_KEY,
            "endpoint": endpoint,
            "client_options": {"allow_http": True},
        }

        def create(name: str) -> None:
            path = f"/{AZURITE_ACCOUNT}/{name}?restype=container"
            _request(port, "PUT", path, _signed_container_headers(name), expected=201)

        yield ObjectServer(endpoint, "az", options, create)


def _signed_container_headers(container: str) -> dict[str, str]:
    """Sign the one request that ``obstore`` cannot make: the creation of a container."""
    sent = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    # An emulator's path begins with the account, which the signature then names twice.
    resource = f"/{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/{container}\nrestype:container"
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in sent.items()), resource]
    digest = hmac.digest(base64.b64decode(AZURITE_KEY), "\n".join(lines).encode(), hashlib.sha256)
    signature = base64.b64encode(digest).decode()
    return sent | {"Authorization": f"SharedKey {AZURITE_ACCOUNT}:{signature}"}


def _installed_azurite() -> Path:
    """Return the folder that holds the pinned Azurite; install it there once, for all workers."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seamark-tests"
    home = cache / f"azurite-{AZURITE_VERSION}"
    if home.is_dir():
        return home
    npm = _tool("npm")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it: wait, then look again
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
                package = f"azurite@{AZURITE_VERSION}"
                _install([npm, "install", "--prefix", scratch, *flags, package])
                Path(scratch).rename(home)  # whole or not at all
                Path(scratch).mkdir()  # for the context manager to remove
    return home


def _install(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServerUnavailable(f"npm gave up after {INSTALL_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise ServerUnavailable(f"npm could not install azurite: {done.stderr.strip()[-500:]}")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ServerUnavailable(f"{name} is not installed (azurite needs node and npm)")
    return path


def _on_port(name: str, command: Callable[[int], list[str]], ready: str) -> Callable[[int], Server]:
    def answers(port: int) -> bool:
        with contextlib.suppress(http.client.HTTPException):
            _request(port, "GET", ready, {})
            return True
        return False

    return lambda port: Server(name, port, command(port), lambda _: answers(port))


def _request(
    port: int, method: str, path: str, headers: dict[str, str], expected: int | None = None
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if expected is not None and answer.status != expected:
        raise RuntimeError(f"{method} {path}: {answer.status} {body[:300]!r}")
