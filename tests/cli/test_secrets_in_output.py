"""I10 at the screen: a secret in any place of a store or directory is printed by no command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from seamark import ConnectorCheckpoint, open_store
from seamark.cli.app import run
from seamark.manifest import SinkCommitStatus
from seamark.progress import open_progress, rocksdb_url
from tests.cli.support.stores import COMMITTED, save
from tests.native.support.inspected import CONF, make_hdfs, offsets, write

SECRETS = st.text("abcXYZ019/+%!$-_.~", min_size=10, max_size=24).filter(
    lambda text: len(set(text)) > 6 and text[0].isalnum()
)
PLACES = [
    "s3a://KEY:{}@bucket/in",
    "s3a:KEY:{}@bucket/in",
    "jdbc:postgresql://u:{}@host/db",
    "sasl.jaas.config=x password='{}'",
    '{{"secret.key": "{}"}}',
    '{{"inner": "{{\\"password\\": \\"{}\\"}}"}}',
]


def planted(secret: str) -> dict[str, str]:
    """An offset with the secret in every form, some told by the text and some by the name."""
    found = {f"form{number}": text.format(secret) for number, text in enumerate(PLACES)}
    return found | {"password": secret, "fs.s3a.secret.key": secret, "sasToken": secret}


def a_store(root: Path, secret: str) -> None:
    offsets = planted(secret)
    sources = {
        "trades": ConnectorCheckpoint(offsets, 1, {"line": json.dumps(offsets)}),
        PLACES[1].format(secret).replace("/", "-"): ConnectorCheckpoint(offsets),
    }
    failed = SinkCommitStatus.failed(PLACES[0].format(secret))
    with open_store(root) as store:
        store.claim(writer=PLACES[2].format(secret), pipeline=PLACES[1].format(secret))
        for number in (1, 2, 3):
            save(
                store,
                number,
                is_incremental=False,
                parent_id=None,
                source_offsets=sources,
                source_names=[],
                table_offsets=sources,
                sink_commit_statuses={"bars": failed, "large": COMMITTED},
                extra={
                    "structure": {"sources": {"trades": offsets}, "sinks": {"bars": offsets}},
                    "native": {"path": PLACES[0].format(secret), **offsets},
                    "sink_guarantees": {"bars": PLACES[0].format(secret)},
                },
            )
    manifest = root / "checkpoints/checkpoint_000001/manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"epoch":1', b'"epoch":9', 1))
    with open_progress(rocksdb_url(root / "progress")) as progress, progress.session() as session:
        session.stage_checkpoint("trades", 3, json.dumps(offsets).encode())
        session.stage_checkpoint("text", 3, PLACES[0].format(secret).encode())


def a_directory(path: Path, secret: str) -> None:
    """A checkpoint directory of Spark with secrets in its settings and offsets."""
    make_hdfs(path, 3)
    conf = {f"spark.hadoop.{name}": text for name, text in planted(secret).items()}
    for batch in range(4):
        write(
            path, f"offsets/{batch}", offsets(batch, json.dumps(planted(secret)), conf=CONF | conf)
        )


STORE_COMMANDS = [
    ["list", "STORE"],
    ["list", "STORE", "--verify"],
    ["show", "STORE", "3"],
    ["show", "STORE", "1"],
    ["diff", "STORE", "2", "3"],
    ["verify", "STORE", "--read-data"],
    ["recover", "STORE", "--explain"],
    ["prune", "STORE", "--keep", "1"],
    ["gc", "STORE"],
    ["rollback", "STORE", "2"],
    ["doctor", "STORE", "--read-only"],
    ["sources", "STORE"],
    ["copy", "STORE", "COPY"],
    ["pin", "STORE", "3", "password=SECRET"],
    ["show", "STORE", "s3a:KEY:SECRET@x"],
    ["list", "s3a:KEY:SECRET@bucket"],
    ["list", "s3:/KEY:SECRET@bucket"],
    ["list", "s3://KEY:SECRET@bucket"],
    ["spark", "inspect", "DIRECTORY"],
    ["spark", "inspect", "DIRECTORY", "--read-data"],
    ["spark", "snapshot", "DIRECTORY", "TAKEN"],
    ["spark", "inspect", "s3a:KEY:SECRET@bucket"],
]


@pytest.mark.slow
@given(secret=SECRETS)
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],  # a run takes seconds, and any secret shows the same
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_secret_in_any_place_is_printed_by_no_command(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    root = tmp_path_factory.mktemp("secrets")
    a_store(root / "store", secret)
    a_directory(root / "job", secret)
    names = {"STORE": "store", "COPY": "copy", "DIRECTORY": "job", "TAKEN": "taken"}
    for words in STORE_COMMANDS:
        given = [
            str(root / names[word]) if word in names else word.replace("SECRET", secret)
            for word in words
        ]
        for more in ([], ["--json", "-vv"]):
            code = run([*given, *more])
            out, err = capsys.readouterr()
            assert "should not have happened" not in err, (words, more)
            assert secret not in out + err, (words, more, code)
