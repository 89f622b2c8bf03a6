"""What the page may cost: its own process, and the stores that it looks at.

Tests: ``tests/ui/test_load.py``.
"""

from __future__ import annotations

from typing import Final

MOST_PLACES: Final = 64
"""Stores and directories of one page; each has two threads."""

# connections
MOST_CONNECTIONS: Final = 512
REQUEST_PATIENCE: Final = 10.0
"""Seconds from a connection, or from the first byte of a further request, to the whole request."""
ANSWER_PATIENCE: Final = 20.0
"""Seconds for which a client may refuse to take the next piece of an answer."""
KEEP_ALIVE: Final = 10
MOST_REQUEST_BYTES: Final = 16 << 10
MOST_LISTENERS: Final = 200
"""Open streams of events."""
HEARTBEAT: Final = 15.0
STREAM_SECONDS: Final = 3600.0
"""After that a stream of events ends, and the browser opens a new one."""

# stores
LOOK_EVERY: Final = 3.0
"""Seconds between two looks at a store, for as long as anybody looks at the page."""
UNWATCHED_AFTER: Final = 60.0
"""Seconds after the last request until a store is left alone."""
LIST_EVERY: Final = 60.0
"""Seconds between two listings of a store that has a pointer."""
INSPECT_EVERY: Final = 15.0
READ_PATIENCE: Final = 20.0
"""Seconds that a request waits for a store."""
KEEP_ANSWERS: Final = 5.0
"""Seconds for which an answer of a store is given to others who ask the same."""
MOST_ANSWERS: Final = 64
KEPT_POINTS: Final = 20_000
"""Checkpoints of a store that are remembered."""
NEWEST: Final = 60
"""Checkpoints that the overview is made of."""
MOST_POINTS: Final = 400
"""Checkpoints that one picture is made of."""
ROWS: Final = 50
"""Checkpoints on one page of a table."""
MOST_NAMES: Final = 64
"""Sinks, sources or steps that a picture knows by name, of one checkpoint and of all."""
LONGEST_NOTE: Final = 300
MOST_CHECKS: Final = 2
"""Checks that run at a time, over all places."""
MOST_CELLS: Final = 2000
"""Partitions of one operator that are drawn."""
MOST_ROWS: Final = 500
"""Rows of a table whose length a store decides."""
MOST_MEMBERS: Final = 10_000
"""Values that one page is made of."""
LONGEST_TEXT: Final = 4_000
"""Characters of one value on a page."""
STATE_ROWS: Final = 50
"""Rows of state on one page."""
FURTHEST_ROW: Final = 100_000
"""Spark reads all rows before a page anew, so beyond this one a partition must be chosen."""
KEPT_ROW_PAGES: Final = 24
MOST_RESTORED_BYTES: Final = 2 << 30
"""Of a checkpoint, or of a directory on an object store, that is copied here to read its rows."""
ROWS_PATIENCE: Final = 600.0
"""Seconds that reading rows may take."""
ROWS_IDLE: Final = 120.0
"""Seconds after which a Spark that nobody asks for rows is ended."""
LARGEST_ROWS: Final = 16 << 20
"""Bytes of one page of rows."""
