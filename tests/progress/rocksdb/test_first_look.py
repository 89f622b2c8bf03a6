"""A folder of RocksDB that may be anybody's is read where memory and time are limited."""

from __future__ import annotations

from pathlib import Path

import pytest
import rocksdict

from seamark.errors import DamageError
from seamark.progress import open_progress
from seamark.progress.rocksdb.first_look import require_readable
from tests.cli.support.running import Cli
from tests.progress.support.children import write_number


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def swollen(folder: Path) -> None:
    """A position of hundreds of megabytes in one block of some kilobytes."""
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.zstd())
    database = rocksdict.Rdict(str(folder), options)
    database[b"source_sequence:orders"] = bytes(8)
    database[b"source_position:orders"] = bytes(300 << 20)
    database.flush()
    database.close()
    for log in folder.glob("*.log"):  # what is in the file of rows is in no log any more
        log.write_bytes(b"")


@pytest.mark.slow
def test_a_block_that_unpacks_to_hundreds_of_megabytes_is_not_opened(
    cli: Cli, tmp_path: Path
) -> None:
    swollen(tmp_path / "progress")
    stored = sum(file.stat().st_size for file in (tmp_path / "progress").iterdir())
    assert stored < 1_000_000
    with pytest.raises(DamageError, match="far more memory or time"):
        require_readable(str(tmp_path / "progress"))
    for command in ("sources", "doctor"):
        assert cli(command, f"rocksdb://{tmp_path / 'progress'}") == 3
        assert "far more memory or time" in " ".join(cli.err.split())


def test_a_usual_folder_is_read_also_alongside_its_writer(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    with open_progress(f"rocksdb://{folder}") as writer:
        write_number(writer, 7)
        require_readable(str(folder))
        assert cli.document("sources", folder)["sources"]


def test_what_is_wrong_otherwise_is_left_to_who_opens_it(tmp_path: Path) -> None:
    require_readable(str(tmp_path))
    require_readable(str(tmp_path / "missing"))
