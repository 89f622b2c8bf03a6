"""An S3 server on loopback: versitygw over a temporary folder, or moto where it was not built."""

from __future__ import annotations

import contextlib
import tempfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3

from tests.support.processes import Server, ServerUnavailable, running
from tests.support.servers import ObjectServer, s3_server
from tools.versitygw import PROGRAM, is_there

_KEY, _SECRET, _REGION = "integration", "integration-secret-5f1c", "us-east-1"


@contextlib.contextmanager
def versitygw_server() -> Iterator[ObjectServer]:
    """Run versitygw. Raises ServerUnavailable where it was not built."""
    if not is_there():
        raise ServerUnavailable("it was not built: make integration builds it by Go")
    with tempfile.TemporaryDirectory(prefix="versitygw-") as folder:
        objects, attributes = Path(folder, "objects"), Path(folder, "attributes")
        objects.mkdir()
        attributes.mkdir()

        def on_port(port: int) -> Server:
            account = ["--access", _KEY, "--secret", _SECRET, "--region", _REGION]
            listen = ["--port", f"127.0.0.1:{port}", "--health", "/health", "--quiet"]
            # not every file system in memory has extended attributes
            backend = ["posix", "--sidecar", str(attributes), str(objects)]
            command = [str(PROGRAM), *account, *listen, *backend]
            return Server("versitygw", port, command, lambda _: _answers(port))

        with running(on_port) as server:
            endpoint = f"http://127.0.0.1:{server.port}"
            options = {
                "endpoint": endpoint,
                "access_key_id": _KEY,
                "secret_access_key": _SECRET,
                "region": _REGION,
                "virtual_hosted_style_request": False,
                "client_options": {"allow_http": True},
            }
            client = boto3.client(
                "s3",
                endpoint_url=endpoint,
                region_name=_REGION,
                aws_access_key_id=_KEY,
                aws_secret_access_key=_SECRET,
            )

            def create(name: str) -> None:
                client.create_bucket(Bucket=name)

            try:
                yield ObjectServer(endpoint, "s3", options, create)
            finally:
                client.close()


@contextlib.contextmanager
def versitygw_or_moto() -> Iterator[ObjectServer]:
    """Run versitygw, or moto with a warning where that was not built."""
    if is_there():
        with versitygw_server() as server:
            yield server
        return
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # shown in the summary, but fails no test
        warnings.warn("versitygw was not built: moto is the S3 server", stacklevel=1)
    with s3_server() as server:
        account = {"access_key_id": _KEY, "secret_access_key": _SECRET}  # any will do
        yield replace(server, storage_options={**server.storage_options, **account})


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False
