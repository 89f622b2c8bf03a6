"""A real HDFS on loopback: Hadoop's NameNode and one DataNode, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from tests.support.light_java import light_java
from tests.support.processes import Server, ServerUnavailable, free_port, running
from tools.hdfs import server_jars

_FORMAT_SECONDS = 120.0
_PACKAGE = "org.apache.hadoop.hdfs.server"


class Hdfs:
    """Both servers, which can go down and come up again over the same files."""

    def __init__(self, namenode: Server, datanode: Server, web: int) -> None:
        self._port = web
        self.namenode = namenode
        self.datanode = datanode
        self.url = f"hdfs://127.0.0.1:{namenode.port}"

    def size(self, path: str) -> int:
        """Bytes of all files below a folder."""
        found = self._web("GET", path, "GETCONTENTSUMMARY")
        return int(found["ContentSummary"]["length"])

    def names(self, path: str) -> list[str]:
        """What lies directly in a folder."""
        found = self._web("GET", path, "LISTSTATUS")
        return [str(each["pathSuffix"]) for each in found["FileStatuses"]["FileStatus"]]

    def delete(self, path: str) -> None:
        """Delete a folder and all that is in it."""
        assert self._web("DELETE", path, "DELETE&recursive=true")["boolean"]

    def _web(self, method: str, path: str, operation: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}/webhdfs/v1{path}?op={operation}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
            return cast("dict[str, Any]", json.load(answer))

    def kill(self) -> None:
        """Kill both (SIGKILL), as a power cut of the machine would."""
        self.datanode.kill()
        self.namenode.kill()

    def start(self) -> None:
        """Start both again and wait until files can be read and written."""
        self.namenode.start()
        self.datanode.start()


@contextlib.contextmanager
def hdfs_server() -> Iterator[Hdfs]:
    """Run an empty HDFS. Raises ServerUnavailable where its jar was not fetched."""
    if not server_jars():
        raise ServerUnavailable("its jar is not there: make integration fetches it by Maven")
    with tempfile.TemporaryDirectory(prefix="hdfs-") as folder:
        web = free_port()

        def namenode(port: int) -> Server:
            home = Path(folder, str(port))
            _write_settings(home, port, web)
            command = [*light_java([home, *server_jars()]), f"{_PACKAGE}.namenode.NameNode"]
            format_ = [*command, "-format", "-force", "-nonInteractive"]
            subprocess.run(format_, check=True, capture_output=True, timeout=_FORMAT_SECONDS)
            return Server("NameNode", port, command, lambda _: bool(_status(web)))

        with running(namenode) as names:
            home = Path(folder, str(names.port))
            command = [*light_java([home, *server_jars()]), f"{_PACKAGE}.datanode.DataNode"]
            blocks = Server("DataNode", 0, command, lambda _: _takes_files(web))
            blocks.start()
            try:
                yield Hdfs(names, blocks, web)
            finally:
                blocks.stop()


def _write_settings(home: Path, port: int, web: int) -> None:
    home.mkdir(parents=True)
    _write(home / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{port}"})
    _write(
        home / "hdfs-site.xml",
        {
            "dfs.namenode.name.dir": home / "names",
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
            "dfs.datanode.data.dir": home / "blocks",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",  # files can be written at once after a restart
            "dfs.permissions.enabled": "false",
            "dfs.replication": "1",
        },
    )


def _write(path: Path, settings: Mapping[str, object]) -> None:
    rows = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>{''.join(rows)}</configuration>\n")


def _takes_files(web: int) -> bool:
    """Whether the DataNode of now is known and nothing is missing any more."""
    status = _status(web)
    return status.get("FSState") == "Operational" and status.get("NumLiveDataNodes") == 1


def _status(web: int) -> dict[str, Any]:
    """What the NameNode says about its files; empty as long as it says nothing."""
    url = f"http://127.0.0.1:{web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            beans = json.load(answer)["beans"]
    except urllib.error.URLError:
        return {}
    return cast("dict[str, Any]", beans[0]) if beans else {}
