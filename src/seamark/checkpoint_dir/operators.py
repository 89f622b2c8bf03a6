"""What a stateful operator is: its stores, and how many partitions each has.

From 4.0 on Spark describes every operator in ``state/<operator>/_metadata``. An older Spark wrote
no description, and a newer one can be lost. Then the folders tell the stores, the offset log the
number of partitions, and the schema next to the state (Spark 3.1 and later) the kind of operator.
Pure functions over names and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from seamark import limits
from seamark._common.checks import check_name
from seamark._common.json_documents import UNREADABLE, decode_unambiguous
from seamark.checkpoint_dir.state_files import SST_FOLDER
from seamark.errors import DamageError

DEFAULT_STORE: Final = "default"
MOST_PARTITIONS: Final = 1_000_000
"""No operator has more; a folder with a higher number is none of Spark's."""
UNKNOWN: Final = "unknown"
"""The name of an operator that nothing tells the kind of."""
JOIN: Final = "symmetricHashJoin"
LIMIT: Final = "globalLimit"

JOIN_STORES: Final = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)
"""The stores of a join in state formats 1 and 2, in the order in which Spark lists them."""

_VERSION_LINE: Final = re.compile(r"v[12]")
_NO_STORES: Final = frozenset({SST_FOLDER, "logs"})
_SCHEMA: Final = b'{"type":"struct"'
_NO_FIELDS: Final = _SCHEMA + b',"fields":[]}'
_NULL_TYPES: Final = (b"void", b"null")
_NULL_KEY: Final = b"\x01".ljust(16, b"\0")
"""A row of one field that is null, as Spark has it in memory."""
_HASH_OF_NULL: Final = 42


class StoreFolder(NamedTuple):
    """One state store: the files of one partition of one operator."""

    operator: int
    partition: int
    store: str
    path: str
    """Relative to the directory."""


class StatefulOperator(NamedTuple):
    """One stateful operator of a query."""

    number: int
    name: str
    stores: list[str]
    partitions: int

    @property
    def label(self) -> str:
        """The name under which its state is kept."""
        return f"{self.number}-{self.name}"

    def folders(self, partitions: Iterable[int] | None = None) -> Iterator[StoreFolder]:
        """Every store of every partition, or of some."""
        for partition in range(self.partitions) if partitions is None else partitions:
            for store in self.stores:
                path = store_path(self.number, partition, store)
                yield StoreFolder(self.number, partition, store, path)


def store_path(operator: int, partition: int, store: str) -> str:
    """The folder of one state store, relative to the directory."""
    below = "" if store == DEFAULT_STORE else f"/{store}"
    return f"state/{operator}/{partition}{below}"


def description_path(number: int, versions: Collection[int]) -> str:
    """Where Spark describes an operator, which has files of these versions (one for a schema)."""
    folder = f"state/{number}/_metadata"
    return f"{folder}/v2/{max(versions)}" if versions else f"{folder}/metadata"


def description_fields(number: int, data: bytes) -> dict[str, Any]:
    """The members of Spark's description of an operator; :class:`DamageError` when it is none.

    Nothing is accepted that Spark may read in another way, such as a first line that ends in a
    carriage return.
    """
    try:
        if len(data) > limits.LARGEST_DOCUMENT:
            raise ValueError(f"it has {len(data)} bytes")
        head, _, body = data.decode().partition("\n")
        if not _VERSION_LINE.fullmatch(head):
            raise ValueError("it does not begin with a version")
        fields = decode_unambiguous(body)
        if not isinstance(fields, dict):
            raise ValueError("it is not an object")
    except UnicodeDecodeError:  # which would show all of it
        raise _unreadable(number, ValueError("it is not UTF-8")) from None
    except (*UNREADABLE, DamageError) as error:
        raise _unreadable(number, error) from None
    return fields


def _unreadable(number: int, error: Exception) -> DamageError:
    why = error.what if isinstance(error, DamageError) else repr(error)
    return DamageError(f"Spark's description of stateful operator {number} cannot be read: {why}")


def parse_description(number: int, data: bytes) -> StatefulOperator:
    """The operator that Spark describes; :class:`DamageError` when that cannot be read."""
    fields = description_fields(number, data)
    try:
        stores = fields["stateStoreInfo"]
        if len(stores) > limits.MOST_STORE_NAMES:
            raise ValueError(f"it names {len(stores)} stores")
        operator = StatefulOperator(
            number,
            _name(fields["operatorInfo"]["operatorName"], "the operator's name"),
            [_name(store["storeName"], "the store's name") for store in stores],
            int(stores[0]["numPartitions"]),
        )
    except (LookupError, ValueError, TypeError, OverflowError) as error:
        raise _unreadable(number, error) from None
    if not 0 < operator.partitions <= MOST_PARTITIONS:
        raise DamageError(
            f"stateful operator {number} cannot have {operator.partitions} partitions"
        )
    return operator


def _name(value: object, what: str) -> str:
    """A name that a folder can have; ``ValueError``, in few words, for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is not a text")
    if len(value) > limits.LONGEST_NAME:
        raise ValueError(f"{what} has {len(value)} characters")
    return check_name(value, what)


def stores_among(folders: Iterable[str]) -> list[str]:
    """The stores of an operator, by the folders inside all of its partitions.

    A join has four stores. When one is there, the others must be as well.
    """
    stores = {name for name in folders if name not in _NO_STORES and name[:1] not in ("_", ".")}
    if stores.intersection(JOIN_STORES):
        stores.update(JOIN_STORES)
    return sorted(stores) or [DEFAULT_STORE]


def name_of(stores: Collection[str], schema: bytes | None) -> str:
    """The name of an operator without a description, as far as its stores and schema tell.

    ``schema`` is the file next to the state of partition 0: the key's schema, then the value's.
    """
    if set(stores).intersection(JOIN_STORES):
        return JOIN
    is_limit = schema is not None and any(
        b'"fields":[{"name":"key","type":"' + null + b'"' in schema for null in _NULL_TYPES
    )
    if schema is not None and is_limit and b'"fields":[{"name":"value","type":"long"' in schema:
        return LIMIT
    return UNKNOWN


def has_no_key(schema: bytes) -> bool:
    """Whether state has no key, so that all rows go to one partition."""
    return schema.find(_SCHEMA) == schema.find(_NO_FIELDS) >= 0


def are_of_one_partition(keys: Collection[bytes], partitions: int) -> bool:
    """Whether the keys of partition 0 prove that an operator has no other partition.

    The key of an aggregation without a group has no bytes. That of a limit is null, and a group
    of that name belongs to partition 0 only when the number of partitions divides its hash.
    """
    if not keys:
        return False
    if all(not key for key in keys):
        return True
    return all(key == _NULL_KEY for key in keys) and _HASH_OF_NULL % partitions != 0
