"""``seamark estimate``: what is given, what is printed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support.running import Cli
from tests.cli.support.stores import fill

FIGURES = ("--state", "4GiB", "--changed", "1%", "--every", "30s")


def test_figures_become_a_table_and_json(cli: Cli) -> None:
    document = cli.document("estimate", *FIGURES, "--provider", "hdfs", "--partitions", 16)
    assert document["given"]["state_bytes"] == 4 << 30
    assert document["given"]["changed_bytes"] == round((4 << 30) / 100)
    assert document["given"]["epochs_per_hour"] == 120
    assert document["snapshot"]["bytes"] == 4 << 30
    assert document["month"]["price"] is None
    assert cli("estimate", *FIGURES) == 0
    for words in ("an epoch adds", "every 10 epochs", "a restore", "stored", "a month"):
        assert words in cli.out


def test_prices_become_a_price(cli: Cli) -> None:
    prices = ("--price-writes", 0.005, "--price-reads", 0.0004, "--price-storage", 0.023)
    document = cli.document("estimate", *FIGURES, *prices)
    assert document["month"]["price"] > 0
    assert cli("estimate", *FIGURES, *prices) == 0
    assert "with storage" in cli.out


def test_a_store_tells_its_own_figures(cli: Cli, tmp_path: Path) -> None:
    fill(tmp_path / "store", 5)
    document = cli.document("estimate", tmp_path / "store")
    assert document["from"] == str(tmp_path / "store")
    assert document["checkpoints"] == 5
    # manifest, pointer, record, and the sidecar
    assert document["epoch"]["writes"] == 4
    one = sum(
        path.stat().st_size for path in (tmp_path / "store/checkpoints/checkpoint_000003").iterdir()
    )
    assert document["epoch"]["bytes"] == one
    assert document["stored_bytes"] == pytest.approx(5 * one, rel=0.02)
    assert cli("estimate", tmp_path / "store") == 0


def test_one_checkpoint_is_too_few_and_none_is_an_error(cli: Cli, tmp_path: Path) -> None:
    fill(tmp_path / "store", 1)
    document = cli.document("estimate", tmp_path / "store")
    assert (document["epoch"], document["hour"]) == (None, None)
    assert document["notes"] == ["There are too few checkpoints to tell what an epoch costs."]
    assert cli("estimate", tmp_path / "store") == 0
    (tmp_path / "empty").mkdir()
    assert cli("estimate", tmp_path / "empty") == 4


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--state", "4GiB"),
        ("--state", "4 apples", "--changed", "1%", "--every", "30s"),
        ("--state", "4GiB", "--changed", "101%", "--every", "30s"),
        ("--state", "4GiB", "--changed", "x%", "--every", "30s"),
        ("--state", "4GiB", "--changed", "1%", "--every", "0s"),
        ("somewhere", "--state", "4GiB"),
        ("--state", "9" * 400, "--changed", "1%", "--every", "30s"),
        ("--state", "4GiB", "--changed", "9" * 400, "--every", "30s"),
        (*FIGURES, "--partitions", 10**10, "--json"),
        (*FIGURES, "--min-deltas", 10**10, "--json"),
        (*FIGURES, "--bandwidth", "9" * 400),
        ("somewhere", "--background-rate", "9" * 400 + "TiB"),
    ],
)
def test_figures_that_make_no_sense_are_refused_in_words(
    cli: Cli, words: tuple[object, ...]
) -> None:
    assert cli("estimate", *words) == 2
    assert "Traceback" not in cli.err
