"""Backends that each break one rule of the contract.

``BREAKS`` maps the name of a test in the conformance suite to the backends that it must catch.
"""

from tests.store.support.broken_backends import conditions, listings, names, sharing, values
from tests.store.support.broken_backends.registry import BREAKS

__all__ = ["BREAKS", "conditions", "listings", "names", "sharing", "values"]
