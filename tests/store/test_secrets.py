"""I10: what looks like a secret does not get through a text."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from seamark import _redaction, open_store
from seamark._redaction import Redactor, is_secret_name, redacted_document
from seamark.checkpoint_dir.places.directory import open_directory
from seamark.errors import DamageError, SeamarkError, StoreUnavailableError
from seamark.progress import open_progress
from seamark.sinks import KeyValueSink
from seamark.state import StateStore


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
        "s3a:AKIA:HIDE/ME@bucket/in",
        "jdbc:oracle:thin:scott/HIDEME@//host:1521/x",
        '{"password": "HIDE\\"ME", "x": 1}',
        '{\\"sasToken\\": \\"HIDE ME\\"}',
        'password="HIDE ME and no end',
        "https://HIDEME@host/x",
        "kafka.ssl.keystore.key=HIDEME",
        "ssl.key.pem=HIDEME",
        "basic.auth.user.info=a:HIDEME",
        "db_pass=HIDEME",
        "keypass: HIDEME",
        '{"password": ["HIDE", "ME"]}',
        "{'secret': {'a': 'HIDE', 'b': 'ME'}}",
        "password='HIDE''ME'",
        "x -----BEGIN RSA PRIVATE KEY-----\nHIDE\nME\n-----END RSA PRIVATE KEY----- y",
        "-----BEGIN PRIVATE KEY-----\nHIDEME and no end",
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
        "kansas=3 sassafras: 4 partition-key: 7",
        "abfss://container@account.dfs.core.windows.net/x",
        "org.apache.spark.Foo:x@1a2b3c",
        "passes: 3 compass=north bypass.key=1 userinformation: 5",
        "a PRIVATE KEY----- of nobody",
    ],
)
def test_ordinary_texts_are_left_alone(text: str) -> None:
    assert Redactor({})(text) == text


def test_a_list_of_passwords_is_a_list_without_them() -> None:
    document = {"a.password": ["HIDE", 1], "clientSecrets": ("ME",), "tokens": ["trades"]}
    told = redacted_document(document)
    assert told == {"a.password": ["***", 1], "clientSecrets": ["***"], "tokens": ["trades"]}


SECRETS = st.text("abcXYZ019/+%!$*-_.~", min_size=8, max_size=30).filter(
    lambda text: text.strip("*") and len(set(text)) > 4
)
URLS = [
    "s3://KEY:{}@bucket/x",
    "s3:/KEY:{}@bucket/x",
    "s3:KEY:{}@bucket/x",
    "s3a://KEY:{}@bucket/x",
    "s3a:KEY:{}@bucket/x",
    "S3A:/KEY:{}@bucket/x",
    "gs://KEY:{}@bucket",
    "abfss://container:{}@account/x",
    "https://user:{}@host/x",
    "hdfs:/user:{}@host/x",
    "rocksdb://user:{}@host/x",
    "redis://user:{}@127.0.0.1:1/0?namespace=x",
    "redis:user:{}@127.0.0.1:1/0",
    "nonsense://user:{}@host",
    "file://user:{}@host/x",
]
OPENERS: list[Callable[[str], object]] = [
    open_store,
    lambda url: open_store(Path(url)),
    lambda url: StateStore(url).list(),
    lambda url: open_progress(url, read_only=True).read_config_hash(),
    open_directory,
    lambda url: KeyValueSink(url, key="k"),
]


@pytest.mark.parametrize("url", URLS)
@given(secret=SECRETS)
@settings(max_examples=10, deadline=None, phases=[Phase.generate])
def test_no_url_however_it_is_written_brings_its_password_into_an_error(
    url: str, secret: str
) -> None:
    for opener in OPENERS:
        try:
            opened = opener(url.format(secret))
        except SeamarkError as error:
            told = "".join(traceback.format_exception(error)) + repr(error)
        else:
            told = repr(opened)
        assert secret not in told


@given(secret=SECRETS)
def test_an_error_hides_what_it_is_made_of(secret: str) -> None:
    for url in URLS:
        text = url.format(secret)
        error = DamageError(f"no {text}", where=text, hint=f"password={secret}")
        assert secret not in str(error) + repr(error) + repr(error.__reduce__())


@given(secret=SECRETS)
def test_a_secret_option_is_hidden_however_it_is_written_down(secret: str) -> None:
    redact = Redactor({"aws_secret_access_key": secret})
    from urllib.parse import quote

    for text in (secret, quote(secret), repr(secret), f"x{secret}y"):
        assert secret not in redact(text)
        assert quote(secret, safe="") not in redact(text)


def test_in_a_document_names_tell_secrets_and_sinks_keep_their_status() -> None:
    found = redacted_document(
        {
            "settings": {"spark.hadoop.fs.s3a.secret.key": "HIDEME", "x.partitions": "2"},
            "offset": {"password": 1234, "position": 1234},
            "sinks": {"tokens": "Committed"},
            "watermarks": {"tokens": 17},
            "urls": ["redis://u:HIDEME@h"],
        }
    )
    assert "HIDEME" not in str(found)
    assert found["settings"]["x.partitions"] == "2"
    assert found["offset"] == {"password": "***", "position": 1234}
    assert found["sinks"] == {"tokens": "Committed"}
    assert found["watermarks"] == {"tokens": 17}


def test_an_unavailable_store_is_still_an_os_error() -> None:
    with pytest.raises(OSError, match=r"s3://\*\*\*@bucket"):
        raise StoreUnavailableError("s3://KEY:HIDEME@bucket")


class _Counted:
    """A pattern that counts how often it is searched for."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.searches = 0

    def search(self, text: str) -> re.Match[str] | None:
        self.searches += 1
        return self._pattern.search(text)


def test_names_without_any_part_of_a_secret_name_are_not_searched_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = _Counted(_redaction._SECRET_NAME)
    monkeypatch.setattr(_redaction, "_SECRET_NAME", counted)
    assert not any(is_secret_name(f"{'topic of orders' * 10}-{n}") for n in range(2000))
    assert counted.searches == 0
    assert is_secret_name("topic-of-orders.secret")


def test_no_secret_name_is_passed_over_because_it_is_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = "secret passwd passphrase passcode credential authorization service account private"
    parts += " api key Key base64 pem store tokens pwd PASS sas sig Signature user Info Pass x"
    names = [
        sep.join(each) for sep in ("", "_", ".", "-") for each in product(parts.split(), repeat=2)
    ]
    names += ["pa\u017f\u017fword", "\u212aeystore_pa\u017f\u017f", "s\u0131gnature"]
    found = [is_secret_name(name) for name in names]
    monkeypatch.setattr(_redaction, "_IN_SECRET_NAMES", ("",))
    _redaction._ends_as_secret.cache_clear()
    assert found == [is_secret_name(name) for name in names]
    assert 100 < sum(found) < len(found)
