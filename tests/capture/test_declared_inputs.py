"""A store never has a source read what it is not declared to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.capture.declared_inputs import DeclaredInput
from seamark.capture.plans import install_plan
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import Plan
from seamark.spark.kafka.subscriptions import Subscription


def plan(*files: tuple[str, int]) -> Plan:
    lines = [f'{{"path":"{uri}","timestamp":{at},"batchId":0}}' for uri, at in files]
    return Plan("v1\n{}\n-", {"sources/0/0": "\n".join(["v1", *lines])})


def test_a_plan_of_files_below_the_declared_folder_is_installed(tmp_path: Path) -> None:
    for folder, uri in (
        ("file:/data/in", "file:///data/in/1.json"),
        ("file:/data/a b", "file:///data/a%20b/c/1.json"),
        ("file:/data/one.json", "file:/data/one.json"),
        ("file:/", "file:///data/1.json"),
        ("file:", "file:///data/1.json"),
        ("HDFS://NN:8020/in", "hdfs://nn:8020/in/1.json"),
        ("s3a://bucket/in", "s3a://bucket/in/%C3%BC.json"),
        ("s3a://bucket", "s3a://bucket/1.json"),
    ):
        copy = LocalCopy(str(tmp_path))
        install_plan(copy, 0, plan((uri, 1)), [DeclaredInput("rows", folder)])
        assert uri in (copy.read_text("sources/0/0") or "")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///other/1.json",
        "file:///data/input/1.json",
        "file:///data/in/../other/1.json",
        "file:///data/in/%2e%2e/other/1.json",
        "file:///data/in%2f..%2fother/1.json",
        "file://server/data/in/1.json",
        "hdfs://127.0.0.1:1/data/in/1.json",
        "/data/in/1.json",
        "data/in/1.json",
        "file:data/in/1.json",
        "fi\\tle:///data/in/1.json",
        "file:///data/in?/../../other",
        "file:///data/in#x",
        "//[data/in",
        "",
    ],
)
def test_a_plan_never_has_a_source_read_files_outside_of_its_folder(
    tmp_path: Path, uri: str
) -> None:
    outside = plan(("file:///data/in/0.json", 1), (uri, 1))
    with pytest.raises(RefusedError, match="source 'rows' was planned to read a file") as error:
        install_plan(LocalCopy(str(tmp_path)), 0, outside, [DeclaredInput("rows", "file:/data/in")])
    assert "is not below file:/data/in" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entry",
    [
        'v1\r{"path":"file:/x"}\n{"path":"file:/data/in/1"}',
        'v1\n{"path":"file:/x","path":"file:/data/in/1"}',
        'v1\n{"path":"file:/data/in/1"}\r{"path":"file:/x"}',
        'v1\n{"path":7}',
        "v1\n[]",
        "v1\n{}",
        "v1\nnonsense",
    ],
)
def test_an_entry_that_spark_may_read_in_another_way_is_not_installed(
    tmp_path: Path, entry: str
) -> None:
    odd = Plan("v1\n{}\n-", {"sources/0/0": entry})
    with pytest.raises(DamageError, match="sources/0/0 does not list files"):
        install_plan(LocalCopy(str(tmp_path)), 0, odd, [DeclaredInput("rows", "file:/data/in")])


def test_each_source_has_its_own_folder_and_others_are_not_looked_at(tmp_path: Path) -> None:
    files = Plan(
        "v1\n{}\n-",
        {"sources/0/0": 'v1\n{"t":{"0":4}}', "sources/1/0": 'v1\n{"path":"file:/b/1"}'},
    )
    install_plan(LocalCopy(str(tmp_path)), 0, files, [None, DeclaredInput("b", "file:/b")])
    install_plan(LocalCopy(str(tmp_path)), 0, files, [None])
    with pytest.raises(RefusedError, match="source 'a'"):
        install_plan(LocalCopy(str(tmp_path)), 0, files, [None, DeclaredInput("a", "file:/a")])


FILES = DeclaredInput("rows", "file:/data/in", (0,))


def entry(number: int, *uris: str) -> str:
    lines = [f'{{"path":"{uri}","timestamp":1,"batchId":{number}}}' for uri in uris]
    return "\n".join(["v1", *lines])


def offsets(at: int) -> str:
    return f'v1\n{{}}\n{{"logOffset":{at}}}'


def test_a_plan_has_every_entry_that_it_makes_spark_read(tmp_path: Path) -> None:
    copy = LocalCopy(str(tmp_path))
    copy.write("offsets/1", offsets(1).encode())
    # Spark looks for an entry that is missing in the newest compaction
    with pytest.raises(DamageError, match="reads entries 2 to 3 of the log sources/0"):
        install_plan(
            copy, 2, Plan(offsets(3), {"sources/0/3": entry(3, "file:/data/in/3")}), [FILES]
        )
    with pytest.raises(DamageError, match="reads entries 2 to 2 of the log sources/0"):
        install_plan(copy, 2, Plan(offsets(2), {}), [FILES])
    assert list(copy.files_below(".")) == ["offsets/1"]
    whole = {f"sources/0/{n}": entry(n, f"file:/data/in/{n}") for n in (2, 3)}
    install_plan(copy, 2, Plan(offsets(3), whole), [FILES])
    assert copy.read_text("offsets/2") == offsets(3)


@pytest.mark.parametrize("line", ['{ "logOffset":1}', "1", '{"logOffset":1,"logOffset":2}', "{}"])
def test_a_plan_says_how_far_files_are_read_as_spark_writes_it(tmp_path: Path, line: str) -> None:
    with pytest.raises(DamageError, match="for source 'rows', which reads files"):
        install_plan(LocalCopy(str(tmp_path)), 0, Plan(f"v1\n{{}}\n{line}", {}), [FILES])


def test_an_entry_of_a_plan_has_one_name(tmp_path: Path) -> None:
    odd = Plan(offsets(0), {"sources/0/00": entry(0, "file:/data/in/0")})
    with pytest.raises(DamageError, match="which is no entry of a source's log"):
        install_plan(LocalCopy(str(tmp_path)), 0, odd, [FILES])


# topics


TRADES = DeclaredInput("t", None, (0, 2), Subscription("subscribe=trades", frozenset({"trades"})))


@pytest.mark.parametrize("line", ["-", "{}", '{"trades":{"0":4,"1":0}}'])
def test_a_plan_of_declared_topics_is_installed(tmp_path: Path, line: str) -> None:
    install_plan(LocalCopy(str(tmp_path)), 0, Plan(f"v1\n{{}}\n{line}\n7\n{line}"), [TRADES])
    assert (tmp_path / "offsets" / "0").exists()


@pytest.mark.parametrize("at", [0, 2])
def test_a_plan_never_has_a_source_read_another_topic(tmp_path: Path, at: int) -> None:
    lines = ['{"trades":{"0":4}}', '{"salaries":{"0":1}}', '{"trades":{"0":4}}']
    lines[at] = '{"trades":{"0":4},"salaries":{"0":1}}'
    other = Plan("\n".join(["v1", "{}", *lines]))
    with pytest.raises(RefusedError, match="source 't' was planned to read a topic") as error:
        install_plan(LocalCopy(str(tmp_path)), 0, other, [TRADES])
    assert "salaries-0 is not in subscribe=trades" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        '{"salaries":{"0":1},"salaries":{}}',
        '{"trades":{"0":1},"trades":{"0":1}}',
        '{"trades":{"0":-1}}',
        '{"trades":{"zero":1}}',
        '{"trades":7}',
        "7",
        "",
    ],
)
def test_a_plan_says_where_kafka_is_read_as_spark_writes_it(tmp_path: Path, line: str) -> None:
    odd = Plan(f'v1\n{{}}\n{{"trades":{{"0":1}}}}\n7\n{line}')
    with pytest.raises(DamageError, match="for source 't', which reads Kafka"):
        install_plan(LocalCopy(str(tmp_path)), 0, odd, [TRADES])
