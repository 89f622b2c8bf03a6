"""The REST catalog of Apache Iceberg's own tests, on loopback, over SQLite and a local folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from seamark.spark.java import java_home
from tests.support.processes import ServerUnavailable, free_port
from tools.iceberg import server_jars


@contextlib.contextmanager
def rest_catalog() -> Iterator[dict[str, str]]:
    """Run an empty catalog; the properties that pyiceberg opens it with.

    Raises ServerUnavailable where its jars were not fetched.
    """
    jars = server_jars()
    if not jars:
        raise ServerUnavailable("its jars are not there: make integration fetches them by Maven")
    sparks = Path(pyspark.__file__).parent / "jars"
    [py4j] = sparks.glob("py4j-*.jar")
    with tempfile.TemporaryDirectory(prefix="iceberg-") as folder:
        port, token = launch_gateway(
            classpath=os.pathsep.join(map(str, [*jars, *sparks.glob("hadoop-client-*.jar")])),
            jarpath=str(py4j),
            java_path=str(java_home() / "bin/java"),
            enable_auth=True,
            die_on_exit=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield _serve(gateway, Path(folder))
        finally:
            gateway.shutdown()


def _serve(gateway: JavaGateway, folder: Path) -> dict[str, str]:
    jvm = gateway.jvm
    warehouse = f"file://{folder}/warehouse"
    settings = jvm.java.util.HashMap()
    settings.put("uri", f"jdbc:sqlite:{folder}/catalog.db")
    settings.put("warehouse", warehouse)
    settings.put("jdbc.schema-version", "V1")
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    catalog.initialize("rest", settings)
    adapter = jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
    context = jvm.org.eclipse.jetty.servlet.ServletContextHandler()
    context.setContextPath("/")
    servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(adapter)
    context.addServlet(jvm.org.eclipse.jetty.servlet.ServletHolder(servlet), "/*")
    port = free_port()
    server = jvm.org.eclipse.jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(context)
    server.start()
    return {"name": "rest", "type": "rest", "uri": f"http://127.0.0.1:{port}/"}
