"""I10: what looks like a secret does not get through a text."""

from __future__ import annotations

import pytest

from seamark.store.secrets import Redactor


@pytest.mark.parametrize(
    "text",
    [
        'required username="a" password="HIDE ME";',
        "fs.s3a.secret.key=HIDE/ME+x",
        "{'password': 'HIDE ME'}",
        "AccountKey=HIDEME==;EndpointSuffix=core",
        "fs.azure.account.key.acc.dfs.core=HIDEME",
        "s3a://AKIA:HIDE/ME@bucket/in",
        "https://user:HIDEME@host/x",
        "s3:/AKIA:HIDE/ME@bucket/in",
        "redis://:HIDE@ME@host/0",
        "https://host/x?sig=HIDEME&se=1",
        "Authorization: Bearer HIDEME",
        "X-Amz-Signature=HIDEME",
        "access_token=HIDEME",
        "aws_secret_access_key=HIDEME",
    ],
)
def test_a_secret_is_hidden_and_the_rest_stays(text: str) -> None:
    told = Redactor({})(text)
    assert "HIDE" not in told
    assert "ME" not in told.replace("AccountKey", "")
    assert "***" in told


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/path",
        "token_count=3",
        "the secret key is not here",
        "s3://bucket/design=1/part-0.parquet",
        "key=5 value=6",
    ],
)
def test_ordinary_texts_are_left_alone(text: str) -> None:
    assert Redactor({})(text) == text
