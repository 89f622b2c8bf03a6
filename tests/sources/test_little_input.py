"""A few bytes that ask for much work get an error instead."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import LongType

from seamark.errors import InvalidInputError
from seamark.progress import explain_change
from seamark.sources.offsets import checked_position
from seamark.sources.sequenced import _count
from seamark.sources.table.database import _keywords
from seamark.sources.table.types import _decimal, converter_to, is_whole

BILLIONS_OF_DIGITS = Decimal("1E+9999999999")


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_decimal_of_billions_of_digits_is_no_whole_number() -> None:
    assert not is_whole(BILLIONS_OF_DIGITS)
    assert not is_whole(Decimal("NaN"))
    assert not is_whole(Decimal("1.5"))
    assert is_whole(Decimal("1.50E+2"))
    assert is_whole(Decimal(10**37))
    with pytest.raises(InvalidInputError, match="column 'n'"):
        converter_to(LongType(), "n")(BILLIONS_OF_DIGITS)


def test_a_number_of_rows_of_thousands_of_digits_is_refused_in_short() -> None:
    with pytest.raises(InvalidInputError, match="not 5000 characters"):
        _count({"maxRows": "9" * 5000}, "maxRows", 1)


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        checked_position(nested(100_000))
    with pytest.raises(InvalidInputError, match="must be a JSON object"):
        _keywords("[" * 100_000, "connect")


def test_a_type_of_thousands_of_digits_is_not_known() -> None:
    assert _decimal(f"numeric({'9' * 5000})") is None


def test_a_configuration_with_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not a JSON text of a structure"):
        explain_change(f'{{"a":{"9" * 5000}}}', "{}")
