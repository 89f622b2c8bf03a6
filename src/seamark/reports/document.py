"""The type of all that is reported.

Tests: ``tests/cli/test_show.py``.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
"""What was found out, made of JSON values: printed as JSON, or laid out for a person."""
