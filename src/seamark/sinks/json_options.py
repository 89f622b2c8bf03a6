"""How values become JSON in every sink that writes some: nothing is left out, nothing is cut off.

Tests: ``tests/sinks/test_kafka_columns.py``.
"""

from __future__ import annotations

from typing import Final

JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    # Spark's own default cuts off microseconds, which makes one key of two
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of Spark's ``to_json``."""
