"""Two spellings of one place are one place, and two places are two."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.errors import RefusedError
from seamark.pipeline.declaration.target_places import (
    are_one_place,
    named_target,
    place_of,
    require_places_apart,
)

SAME = [
    ("files", "/data/bars", "/data/bars/"),
    ("files", "/data/bars", "/data//x/../bars"),
    ("files", "/data/bars", "file:///data/bars"),
    ("files", "/data/bars", "/data/bars/inside"),
    ("delta", "s3://bucket/bars", "s3a://bucket/bars/"),
    ("delta", "s3://bucket/bars", "s3://bucket//bars"),
    ("delta", "s3://bucket/bars", "s3://bucket/bars/part"),
    ("delta", "abfss://c@a.dfs.core.windows.net/x", "abfs://c@a.dfs.core.windows.net/x/"),
    ("files", "hdfs://name:8020/bars", "hdfs://name:8020/bars/"),
    ("postgres", "localhost:5432/db/public.bars", "127.0.0.1:5432/db/public.bars"),
    ("postgres", "[::1]:5432/db/public.bars", "localhost:5432/db/public.bars"),
    ("kafka", "a:9092,b:9092/bars", "b:9092,c:9092/bars"),
    ("kafka", "localhost:9092/bars", "127.0.0.1:9092/bars"),
    ("iceberg", "lake.shop.bars at http://localhost:8181/", "x.shop.bars at http://127.0.0.1:8181"),
    ("iceberg", "lake.shop.bars", "lake.shop.bars"),
    ("key-value", "redis://h/0?namespace=a/b", "redis://H:6379/0?namespace=a/b"),
    ("key-value", "rocksdb:///data/view", "rocksdb:///data/./view/"),
]
APART = [
    ("files", "/data/bars", "/data/bars2"),
    ("files", "/data/bars", "s3://data/bars"),
    ("delta", "s3://bucket/bars", "s3://other/bars"),
    ("delta", "abfss://c@a.dfs.core.windows.net/x", "abfss://d@a.dfs.core.windows.net/x"),
    ("postgres", "h:5432/db/public.bars", "h:5433/db/public.bars"),
    ("postgres", "h:5432/db/public.bars", "h:5432/db/public.bars2"),
    ("kafka", "a:9092/bars", "a:9092/bars2"),
    ("kafka", "a:9092/bars", "b:9092/bars"),
    ("iceberg", "lake.shop.bars at http://h:1", "lake.shop.bars2 at http://h:1"),
    ("key-value", "redis://h/0?namespace=a/b", "redis://h/0?namespace=a/c"),
    ("key-value", "redis://h/0?namespace=a/b", "redis://h/1?namespace=a/b"),
]


@pytest.mark.parametrize(("kind", "one", "other"), SAME)
def test_a_place_is_known_however_it_is_spelled(kind: str, one: str, other: str) -> None:
    assert are_one_place(place_of(kind, one), place_of(kind, other))
    assert are_one_place(place_of(kind, other), place_of(kind, one))


@pytest.mark.parametrize(("kind", "one", "other"), APART)
def test_two_places_are_not_taken_for_one(kind: str, one: str, other: str) -> None:
    assert not are_one_place(place_of(kind, one), place_of(kind, other))


def test_a_link_leads_to_the_place_that_it_means(tmp_path: Path) -> None:
    (tmp_path / "bars").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "bars")
    places = [place_of("files", str(tmp_path / name)) for name in ("bars", "link")]
    assert are_one_place(*places)


def test_a_view_in_redis_has_the_namespace_of_its_output_unless_it_names_one() -> None:
    url = "redis://h/0"
    assert named_target("trades", "latest", "key-value", url) == f"{url}?namespace=trades/latest"
    given = f"{url}?namespace=mine"
    assert named_target("trades", "latest", "key-value", given) == given


@pytest.mark.parametrize("odd", ["", "http://[", "\x00", "a" * 100_000, "://", "s3://", "kafka"])
def test_an_odd_target_is_a_place_too(odd: str) -> None:
    for kind in ("files", "kafka", "postgres", "iceberg", "key-value", "own"):
        assert are_one_place(place_of(kind, odd), place_of(kind, odd)) or odd == ""


def sinks(**targets: tuple[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"kind": kind, "target": target} for name, (kind, target) in targets.items()}


@pytest.mark.parametrize(
    "other",
    [
        ("files", "/data/bars/"),
        ("files", "/data/bars/large"),
        ("files", "/data"),
        ("delta", "/data/bars"),
        ("files", "/data/bars/_late=1"),
        ("files", "/data/bars/_seamark/late"),
        ("delta", "/data"),
        ("key-value", "rocksdb:///data/bars"),
    ],
)
def test_outputs_that_would_mix_their_files_are_refused(other: tuple[str, str]) -> None:
    with pytest.raises(RefusedError, match="outputs 'bars' and 'large' write to one folder"):
        require_places_apart("p", sinks(bars=("files", "/data/bars"), large=other))
    with pytest.raises(RefusedError, match="outputs 'large' and 'bars' write to one folder"):
        require_places_apart("p", sinks(large=other, bars=("files", "/data/bars")))


def test_outputs_may_share_a_table_and_have_folders_that_readers_do_not_see() -> None:
    require_places_apart(
        "p",
        sinks(
            bars=("files", "/data/bars"),
            more=("files", "/data/bars2"),
            late=("files", "/data/bars/_late"),
            one=("delta", "/data/table"),
            two=("delta", "/data/table"),
            view=("key-value", "redis://h/0"),
            mine=("my own", ""),
            fn=("function", "to_bars"),
        ),
    )
