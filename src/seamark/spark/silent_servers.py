"""Whether an error of Spark's says that a server did not answer: that proves nothing about data.

Tests: ``tests/spark/test_silent_servers.py``.
"""

from __future__ import annotations

import re
from typing import Final

from seamark.errors import StoreUnavailableError
from seamark.spark.failures import exception_classes, said_by

_SILENT: Final = re.compile(
    r"java\.net\.(?:Connect|UnknownHost|NoRouteToHost|SocketTimeout|Socket)Exception"
    r"|org\.apache\.hadoop\.(?:hdfs\.BlockMissing|net\.ConnectTimeout|ipc\.Standby)Exception"
)


def require_answer(error: Exception, where: str) -> None:
    """:class:`StoreUnavailableError` when files were not read because no server gave them.

    HDFS calls a block missing when the servers that hold it are away, whether for ever or not.
    """
    trace = f"{error}\n{getattr(error, '_stackTrace', '')}"
    if silent := next(filter(_SILENT.fullmatch, exception_classes(trace)), None):
        raise StoreUnavailableError(
            "a server that holds the files does not answer",
            where=f"{where}: {silent}, {said_by(error)}",
            hint="That says nothing about the files. Try again when it is back; on HDFS "
            "'hdfs fsck' says whether blocks are lost.",
        ) from error
