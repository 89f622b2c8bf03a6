"""The type of all that is reported."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
"""What was found out, made of JSON values: printed as JSON, or laid out for a person."""
