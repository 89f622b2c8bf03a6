"""The examples of docs/progress.md run, and its tables are those of the code."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from seamark.progress import Policy, policy, rocksdb_url
from tests.support.databases import RedisServer

PAGE = (Path(__file__).parents[2] / "docs" / "progress.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(
    number: int, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = EXAMPLES[number].replace("rocksdb:///data", rocksdb_url(tmp_path))
    if "redis://" in code:
        server: RedisServer = request.getfixturevalue("redis")
        name = f"orders-{uuid.uuid4()}"
        code = code.replace("redis://cache:6379/0", server.url)
        code = code.replace('namespace="orders"', f'namespace="{name}"')
        code = code.replace("{orders}", f"{{{name}}}")
    names: dict[str, Any] = {}
    exec(compile(code, f"example {number} of progress.md", "exec"), names)
    if (store := names.get("store")) is not None:
        store.close()
    promised = re.findall(r"^ *print\(.*\) +# (.*)$", code, re.M)
    assert capsys.readouterr().out.splitlines() == promised


def test_the_table_of_policies_is_the_one_of_the_code() -> None:
    said = {"fresh start": "FRESH_START", "refuse": "REFUSE", "reset": "RESET", "resume": "RESUME"}
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    written = [
        tuple(said[cell.partition(",")[0]] for cell in row)
        for row in rows
        if all(cell.partition(",")[0] in said for cell in row)
    ]
    assert policy.__doc__ is not None
    column = "(FRESH_START|REFUSE|RESET|RESUME)"
    in_code = re.findall(rf"{column} +{column} +{column}$", policy.__doc__, re.M)
    assert written == in_code
    assert len(written) == 13
    assert all(f"`{each}`" in PAGE for each in Policy)
