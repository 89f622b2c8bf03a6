"""The SQL of an expression is recorded without secrets, and another secret is another mark."""

from __future__ import annotations

import pytest

from seamark.spark.plans.recorded_sql import recorded_sql


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("(token = 'one')", "(token = ***)"),
        ("(s = 'http://me:one@host/x')", "(s = 'http://***@host/x')"),
        (
            "IF((k = 'one'), aes_decrypt(s, 'key'), NULL)",
            "IF((k = '***'), aes_decrypt(s, '***'), NULL)",
        ),
    ],
)
def test_what_is_hidden_has_a_mark(sql: str, shown: str) -> None:
    text, mark = recorded_sql(sql)
    assert text == shown
    assert len(mark) == 4
    assert recorded_sql(sql) == (text, mark)
    assert recorded_sql(sql.replace("one", "two")) != (text, mark)
    assert recorded_sql(sql.replace("one", "two"))[0] == shown


def test_nothing_is_marked_where_nothing_is_hidden() -> None:
    assert recorded_sql("(k = 'one')") == ("(k = 'one')", "")
    assert recorded_sql("(rand(17) > outer(k#12L))") == ("(rand() > outer(k))", "")
