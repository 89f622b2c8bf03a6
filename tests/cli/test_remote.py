"""Commands work on an object store as they do on a disk, with its options from the command line."""

from __future__ import annotations

from seamark import open_store
from tests.cli.support.stores import Commands, save
from tests.support.servers import ObjectServer


def as_words(server: ObjectServer) -> list[str]:
    """What a user types to reach the server."""
    options = {k: v for k, v in server.storage_options.items() if isinstance(v, str)}
    options["allow_http"] = "true"
    return [w for k, v in options.items() for w in ("--storage-option", f"{k}={v}")]


def test_a_bucket_is_listed_shown_verified_and_pruned(seamark: Commands, s3: ObjectServer) -> None:
    url = s3.new_url("trades")
    with open_store(url, storage_options=s3.storage_options) as store:
        for number in range(1, 6):
            save(store, number, is_incremental=False, parent_id=None)
    options = as_words(s3)
    assert seamark.json("list", url, *options)["newest_valid"] == 5
    assert seamark.json(*options, "show", url, "latest")["id"] == 5
    assert seamark.json("verify", url, "--read-data", *options)["ok"] == 5
    assert seamark.json("recover", url, "--explain", *options)["chosen"]["id"] == 5
    seamark("pin", url, 1, "gold", *options)
    assert seamark.json("prune", url, "--keep", 2, "--yes", *options)["removed"] == 2
    left = seamark.json("list", url, *options)["checkpoints"]
    assert [row["id"] for row in left] == [5, 4, 1]
    assert seamark.json("gc", url, "--yes", "--min-age", "0s", *options)["warnings"] == []
    seamark("list", s3.new_url("empty"), *options)


def test_a_claim_that_was_never_given_back_is_believed(seamark: Commands, s3: ObjectServer) -> None:
    """Nobody can tell from afar whether a writer is alive."""
    url = s3.new_url("trades")
    writer = open_store(url, storage_options=s3.storage_options)
    writer.claim()
    for number in (1, 2):
        save(writer, number, is_incremental=False, parent_id=None)
    options = as_words(s3)
    seamark("prune", url, "--keep", 1, "--yes", *options, code=5)
    seamark("prune", url, "--keep", 1, "--yes", "--take-over", *options)
    assert len(seamark.json("list", url, *options)["checkpoints"]) == 1
