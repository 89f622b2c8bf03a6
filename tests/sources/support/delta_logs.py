"""Logs of Delta tables as nobody writes them."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow.compute as pc
from pyarrow import concat_tables, parquet


def swell_checkpoint(table: Path, rows: int) -> None:
    """Have the checkpoint of a log name one file millions of times, which packs well."""
    deltalake.DeltaTable(table).create_checkpoint()
    (place,) = table.glob("_delta_log/*.checkpoint.parquet")
    whole = parquet.read_table(place)
    is_file = pc.is_valid(whole["add"])
    one = whole.filter(is_file).slice(0, 1)
    many = [one.take([0] * 100_000)] * (rows // 100_000)
    rest = whole.filter(pc.invert(is_file))
    parquet.write_table(concat_tables([rest, *many]), place, compression="zstd")
    about = json.dumps({"version": 0, "size": rows + rest.num_rows})
    (table / "_delta_log/_last_checkpoint").write_text(about)
