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


@pytest.mark.parametrize("text", ["'rand(17)'", "'outer(k#12)'", r"'it\'s shuffle(k, 5)'"])
def test_a_text_that_looks_like_a_call_stays_as_it_is(text: str) -> None:
    assert recorded_sql(f"concat({text}, uuid(5))") == (f"concat({text}, uuid())", "")


def test_a_name_with_an_apostrophe_begins_no_text() -> None:
    sql = "(`it's` + rand(5)) + `it's` + `rand(7)` + shuffle(m['a'], 3)"
    assert recorded_sql(sql) == ("(`it's` + rand()) + `it's` + `rand()` + shuffle(m['a'])", "")
