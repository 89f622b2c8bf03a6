"""What a checkpoint or a staging folder says falsely of a view's epochs leaves no row out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.errors import DamageError, RefusedError
from seamark.sinks import Committable
from seamark.sinks.epoch_folder import read_record, seal_epoch
from seamark.sinks.keyvalue.view import EPOCHS, epoch_key, receipt_of_epoch
from tests.sinks.support.views import World, told


def shown(world: World, numbers: range, after: Committable | None = None) -> Committable:
    """One process that shows epochs, each with a key of its own, after it has finished one."""
    sink = world.handle(undo=True)
    if after is not None:
        sink.commit(after)
    last: Committable = {}
    for number in numbers:
        last = world.show(sink, told(number), {"n": number, "at": number})
    return last


def behind(world: World) -> tuple[Committable, Committable]:
    """A view that shows epochs 1 and 2 of 5; the committables of epochs 2 and 5."""
    two = shown(world, range(1, 3))
    older = world.save()
    three = shown(world, range(3, 4), after=two)
    last = shown(world, range(4, 6), after=three)
    world.bring_back(older)
    return two, last


def forge(folder: Path) -> None:
    """Take the rows out of an epoch, and make its record fit."""
    sealed = read_record(str(folder))
    assert sealed is not None
    for file in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(file).slice(0, 0), file)
    seal_epoch(str(folder), sealed.record.receipt)


def test_a_checkpoint_that_names_an_earlier_epoch_before_its_own_leaves_none_out(
    world: World,
) -> None:
    two, last = behind(world)
    before: Any = {name: two[name] for name in ("timeline", "epoch", "attempt")}
    with pytest.raises(DamageError, match="does not say of epoch 5 what was staged with it"):
        world.handle().commit({**last, "after": before})
    assert world.rows().keys() == {"1", "2"}
    world.handle().commit(last)
    assert world.rows().keys() == {"1", "2", "3", "4", "5"}


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_kept_epoch_whose_rows_and_record_were_exchanged_is_not_applied(
    world: World, epoch: int
) -> None:
    _, last = behind(world)
    (folder,) = world.staging.glob(f"kept/*/epoch=00000{epoch}")
    forge(folder)
    with pytest.raises(DamageError, match="not the one that the checkpoint knows"):
        world.handle().commit(last)
    assert world.rows().keys() == {"1", "2"}, "nothing is shown before all of it is known"


def test_a_kept_epoch_in_the_place_of_another_is_not_applied(world: World) -> None:
    _, last = behind(world)
    (three,), (four,) = (world.staging.glob(f"kept/*/epoch=00000{n}") for n in (3, 4))
    for file in four.iterdir():
        file.unlink()
    for file in three.iterdir():
        (four / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DamageError):
        world.handle().commit(last)
    assert world.rows().keys() == {"1", "2"}


def test_an_exchanged_epoch_is_not_taken_back(world: World) -> None:
    two = shown(world, range(1, 3))
    sink = world.handle(undo=True)
    sink.commit(two)
    (folder,) = world.staging.glob("kept/*/epoch=000002")
    forge(folder)
    with pytest.raises(DamageError, match="not the one that the checkpoint knows"):
        sink.unpublish_after(1)
    assert world.rows().keys() == {"1", "2"}


def forged_before(folder: Path, like: Path) -> None:
    """Write down that the view showed something else before an epoch."""
    folder.mkdir(exist_ok=True)
    for file in like.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    table = pq.read_table(like / "rows.parquet")
    row = {"key": [b"2"], "value": [b'{"n":2,"at":666}']}
    columns = [row.get(name, [None]) for name in table.column_names]
    pq.write_table(pa.table(columns, schema=table.schema), folder / "rows.parquet")
    sealed = read_record(str(like))
    assert sealed is not None
    seal_epoch(str(folder), sealed.record.receipt)


def test_what_a_view_showed_before_an_epoch_is_what_it_has_noted(world: World) -> None:
    shown(world, range(1, 3))
    (kept,) = world.staging.glob("kept/a2-*/before-*")
    forged_before(kept, kept)
    with pytest.raises(DamageError, match="what the view showed before an epoch"):
        world.handle(undo=True).unpublish_after(1)
    assert world.rows().keys() == {"1", "2"}


def test_what_others_have_put_beside_a_staged_epoch_is_not_what_the_view_showed(
    world: World,
) -> None:
    shown(world, range(1, 3))
    (like,) = world.staging.glob("kept/a2-*/before-*")
    sink = world.handle(undo=True)
    committable = world.prepare(sink, told(3), {"n": 3, "at": 3})
    forged_before(world.staging / "staging" / committable["attempt"] / "before", like)
    sink.commit(committable)
    assert sink.unpublish_after(1) == [2, 3]
    assert world.rows() == {"1": {"n": 1, "at": 1}}


def test_what_an_earlier_seamark_has_kept_is_taken_back(world: World) -> None:
    shown(world, range(1, 3))
    sink = world.handle(undo=True)
    (kept,) = world.staging.glob("kept/a2-*/before-*")
    kept.rename(kept.with_name("before"))
    with sink._view.store.session() as session:
        receipt = receipt_of_epoch(session, 2)
        session.put(EPOCHS, epoch_key(2), msgspec.json.encode(receipt))
    assert sink.unpublish_after(1) == [2]
    assert world.rows().keys() == {"1"}


def test_an_epoch_that_was_shown_without_undo_is_not_taken_back_by_what_others_put_there(
    world: World,
) -> None:
    shown(world, range(1, 3))
    (like,) = world.staging.glob("kept/a2-*/before-*")
    sink = world.handle()
    world.show(sink, told(3), {"n": 3, "at": 3})
    (kept,) = world.staging.glob("kept/a3-*")
    forged_before(kept / "before", like)
    with pytest.raises(RefusedError, match="it is not known what the view showed"):
        sink.unpublish_after(2)
